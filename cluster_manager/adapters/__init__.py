"""The cluster manager's connections to the world outside."""
