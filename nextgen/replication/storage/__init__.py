"""The disk under a replica: a port, the real disk, and small files replaced as a whole.

The journal, snapshots and the host call it; calls block.
"""
