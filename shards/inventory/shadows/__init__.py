"""Shadow topics on a shard's leader: created, grown and deleted together with their sources.

Sources and shadows live in different shards, which send each other orders.
"""
