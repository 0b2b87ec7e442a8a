"""Quotas of brokers and tenants, from their assignments and load.
``pipelines.__main__`` imports ``command``; no other job imports this one.
"""
