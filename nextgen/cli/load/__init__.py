"""Load from another process: what perf and demo drive the public ports with."""
