"""Implements a shard node's ports: gRPC servers and clients, Raft, clocks, metrics.

Only ``bootstrap`` and ``recover`` call it.
"""
