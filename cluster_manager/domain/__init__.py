"""The cluster manager's rules: members, shard map, leases of capacity, quotas.
Pure: time and ids come in with the command. Every other layer may call it.
"""
