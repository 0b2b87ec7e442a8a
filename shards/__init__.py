"""Shard nodes: the Raft group of a shard holds tenants, namespaces, topics and their owners.

Architecture: rooms are named in ARCHITECTURE.md; ``bootstrap`` joins ports and adapters.
"""
