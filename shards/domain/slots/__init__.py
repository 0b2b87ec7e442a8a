"""Moves of slots between shards: what the logs of both record (``docs/flows/slot-moves.md``)."""
