"""``pipeline reshard``: what moves when the number of shards changes, in which order, how long."""
