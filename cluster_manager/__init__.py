"""The cluster manager: members, the shard map, leaders, the broker directory, capacity, quotas.
``python -m cluster_manager`` starts a replica. No other component imports it.
See docs/flows/membership.md and docs/flows/lookup.md.
"""
