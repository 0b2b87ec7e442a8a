"""Load history: series, percentiles, growth, skew, hot topics and when capacity runs out.
``pipelines.__main__`` imports ``command``; no other job imports this one.
"""
