"""Turns an inventory of names into load files: per shard, ascending, each name once.
``pipelines.__main__`` imports ``command``; no other job imports this one.
"""
