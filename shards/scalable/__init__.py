"""Scalable topics: what the leader of a shard does about their segments.

For ``node``.
"""
