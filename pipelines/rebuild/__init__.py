"""Folds events up to a position or a time into tables of every shard's view, and can compare these
with a live cluster.
``pipelines.__main__`` imports ``command``; no other job imports this one.
"""
