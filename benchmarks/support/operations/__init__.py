"""Blocks of single operations on a cluster: who calls, what it costs, and the same of peers.

Benchmarks call it.
"""
