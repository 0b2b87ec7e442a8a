"""Forwards what brokers report of units to the shards of the units' topics: idle and drained units,
loads of segments. Made by the shard leader; broker sessions call them."""
