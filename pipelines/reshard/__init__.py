"""Plans another number of shards: which slots move, in which order, how long it takes.
``pipelines.__main__`` imports ``command``; no other job imports this one.
"""
