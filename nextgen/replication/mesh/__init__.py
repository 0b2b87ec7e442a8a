"""One listener and one connection per pair of processes, for all Raft groups of a process.

The host opens it; the raft room sends and receives frames.
"""
