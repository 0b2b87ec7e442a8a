"""Windows of lookups by minute and month: availability, error budget, worst minutes.
``pipelines.__main__`` imports ``command``; no other job imports this one.
"""
