"""Fold events up to a position or a time: every shard's view, as tables."""
