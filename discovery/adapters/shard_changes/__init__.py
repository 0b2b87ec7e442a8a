"""The streams by which shards tell of changes: assignments for the cache, all kinds for watches.
The cache stays true by them, or is told to forget. ``bootstrap`` alone imports it.
"""
