"""`brokers`, `leases`, `quotas`, `rebalance` and `brokers drain`, and how they ask discovery
and the cluster manager. They show what brokers may take, and move load between them.
nextgen.main calls it; no other room imports its modules.
"""
