"""Tenants, namespaces, topics, policies, moves, drains: each request goes to the shards it is for.
Discovery keeps nothing of them. The servicer of gRPC calls it.
"""
