"""Moves of slots between shards: what is recorded of them, and the plans that they are parts of."""
