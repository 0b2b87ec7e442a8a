"""Disks: the port that replicas and brokers' ledgers share, the real disk, small files.

The journal, snapshots, the Raft host and the ledgers of brokers call it; calls block. All of their
files are written through it, except for SQLite's views (ADR 0070).
"""
