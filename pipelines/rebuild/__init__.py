"""Folds events up to a position or a time: every shard's view, as tables; verifies them live.
``pipelines.__main__`` imports ``command``; no other job imports this one.
"""
