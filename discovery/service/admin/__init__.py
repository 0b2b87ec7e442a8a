"""Tenants, namespaces, topics, policies, moves, drains: routes each request to its shards.
Discovery keeps nothing of them. The servicer of gRPC calls it.
"""
