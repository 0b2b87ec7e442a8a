"""The change streams of shards: assignments for the cache, all kinds of changes for watches.
They keep the cache correct, or reset it. ``bootstrap`` alone imports it.
"""
