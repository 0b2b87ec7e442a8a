"""Ports of a shard node joined to the world: gRPC servers and clients, Raft, clocks, metrics.

Only ``bootstrap`` and ``recover`` call it.
"""
