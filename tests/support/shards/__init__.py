"""Shards, broker sessions and change streams in one process, on a log in memory.

Unit tests of the rooms of shards use it."""
