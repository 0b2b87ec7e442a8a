"""All Raft groups of one process: opened, closed, verified, promoted; the port's implementation.

Components' adapters call it.
"""
