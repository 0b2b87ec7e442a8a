"""Elections: campaigns and votes of pysyncobj, our timers, pre-vote, term probes, peer checks.

The raft room calls it.
"""
