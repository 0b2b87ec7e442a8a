"""The replicated log: Raft groups with a durable journal, a folded view, and snapshots.

Components see ``ports``; their adapters open groups through ``host``.
"""
