"""Moves of slots between shards, as the cluster manager's leader runs them."""
