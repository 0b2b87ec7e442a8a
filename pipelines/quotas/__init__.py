"""Quotas of brokers and tenants from what they had and carried."""
