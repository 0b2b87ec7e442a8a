"""Tables that follow a growing export, each event in them exactly once.
``pipelines.__main__`` imports ``command``; no other job imports this one.
"""
