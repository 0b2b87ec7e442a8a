"""`brokers` (`drain`, `settings`), `leases`, `quotas`, `rebalance`, and their calls to discovery
and the cluster manager. They show capacity and load of brokers, and move load between them.
nextgen.main calls it; no other room imports its modules.
"""
