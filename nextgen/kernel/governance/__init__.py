"""Settings of tenants and operators, and reports of brokers and lookups.

Each module holds values and the rules that check them: policies, quotas, load, the lookup SLO.
Every package above the kernel may import it.
"""
