"""Ledger stores: on disk (``store``) and in memory (``memory_ledger``), by the rules of the port.
A store tells that an entry is safe only after fsync and a look for fences (ADR 0019).
``bootstrap`` imports the two stores; the rooms below belong to the store on disk.
"""
