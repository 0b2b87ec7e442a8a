"""Makes a realistic history of a cluster with Spark, and writes it as an export.
The same seed gives the same history. ``pipelines.__main__`` imports ``command``.
"""
