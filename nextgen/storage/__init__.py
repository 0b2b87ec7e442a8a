"""Disks: the port that replicas and brokers' ledgers share, the real disk, small files.

The journal, snapshots, the Raft host and the ledgers of brokers call it; calls block. Nothing that
they keep is written in another way, but for SQLite's views (ADR 0070).
"""
