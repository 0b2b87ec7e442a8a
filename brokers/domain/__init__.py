"""Pure: what a broker holds, and the rules of its session."""
