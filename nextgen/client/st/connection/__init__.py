"""Connections of the scalable-topics client: frames to their receivers, a pool, lookups, memory.

Only ``nextgen.client.st`` uses it.
"""
