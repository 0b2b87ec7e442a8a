"""Folds of a shard's events into rows of its view, and the reads of those rows.

The state room and the replica call it; a fold never decides.
"""
