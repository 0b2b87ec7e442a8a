"""Follows a shard's changes for a subscriber, and finds the watches that a change concerns.

A watch learns every change that concerns it, in order, from replica to replica.
Discovery and shards follow changes with it; shards also serve changes with its index.
"""
