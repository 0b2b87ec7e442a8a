"""The durable log of one Raft group on one disk: entries, term and vote, checked and repaired.

The raft room appends and reads; recovery runs before the replica starts.
"""
