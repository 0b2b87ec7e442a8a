"""Moves of slots: what a shard decides about them, and what its leader does next."""
