"""Follows a shard's changes for a subscriber, and finds the watches that a change matches.

A watch gets every change that matches it, in order, also when it moves to another replica.
Discovery and shards follow changes with it; shards also serve changes with its index.
"""
