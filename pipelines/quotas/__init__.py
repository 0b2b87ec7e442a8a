"""Quotas of brokers and tenants from what they had and carried.
``pipelines.__main__`` imports ``command``; no other job imports this one.
"""
