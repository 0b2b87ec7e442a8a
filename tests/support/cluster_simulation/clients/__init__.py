"""The callers of a simulated cluster: the simulation runs them beside its faults."""
