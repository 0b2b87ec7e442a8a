"""Carries out the pending operations of scalable topics, as the leader of the shard.

Brokers of segments do what it asks, as often as it asks. For ``node``.
"""
