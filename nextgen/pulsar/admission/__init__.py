"""Whether a client of the Pulsar protocol may do what its commands ask for (ADR 0158)."""
