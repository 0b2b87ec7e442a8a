"""Subscriptions to a shard's changes, their delivery, and when a write or a move is effective.

The replica publishes every commit to one hub here; sessions and discovery subscribe: plain, with
acknowledgements, or with a lease.
"""
