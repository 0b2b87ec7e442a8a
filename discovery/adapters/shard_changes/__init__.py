"""The streams by which shards tell of changes: assignments for the cache, all kinds for watches.
They keep the cache correct, or reset it. ``bootstrap`` alone imports it.
"""
