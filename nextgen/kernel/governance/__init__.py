"""What tenants and operators set, and what brokers and lookups report on themselves.

Each module holds values and the rules that check them: policies, quotas, load, the lookup SLO.
Every package above the kernel may import it.
"""
