"""Makes a realistic history of a cluster and writes it as an export, by Spark alone.
The same seed gives the same history. ``pipelines.__main__`` imports ``command``.
"""
