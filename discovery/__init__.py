"""The discovery service: any node answers for any topic, and carries every write to its shard.
``python -m discovery`` starts one. No other component imports it.
"""
