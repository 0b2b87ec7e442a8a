"""Plans another number of shards: what moves, in which order, how long it takes.
``pipelines.__main__`` imports ``command``; no other job imports this one.
"""
