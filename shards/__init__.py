"""Shard nodes: one Raft group a shard holds tenants, namespaces, topics and who serves them.

Architecture: rooms are named in ARCHITECTURE.md; ``bootstrap`` joins ports and adapters.
"""
