"""Renames of topics: at a topic's home, and at the shard that has the slot of its new name.

Called by ``shards.inventory`` and by the node's dispatcher.
"""
