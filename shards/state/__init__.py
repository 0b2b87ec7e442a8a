"""The state of one shard as its leader decides on it: the view, and what is pending on top.

The leader's services read by its parts and propose by its ``Proposer``, the only way into the log.
"""
