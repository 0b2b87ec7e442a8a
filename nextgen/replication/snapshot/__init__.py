"""Snapshots of a view: files, and their transfer in chunks to followers that need one.

The host starts it; it uses the raft room's replica.
"""
