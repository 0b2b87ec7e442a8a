"""Segments of scalable topics: hash ranges, entry buckets, and what is known of a segment.

Shards decide with it, nodes and clients read with it.
"""
