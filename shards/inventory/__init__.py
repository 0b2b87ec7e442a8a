"""Tenants, namespaces and topics: creates, changes, deletes and reads of one shard.

The node's dispatcher calls the service; the decisions are the domain's.
"""
