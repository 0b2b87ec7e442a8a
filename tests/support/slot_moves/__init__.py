"""Slots that move between shards, for tests."""
