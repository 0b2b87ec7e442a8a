"""Ledger stores: on disk (``store``) and in memory (``memory_ledger``), by the rules of the port.
A store acknowledges an entry only after its fsync and a check for fences (ADR 0019).
``bootstrap`` imports the two stores; the packages below belong to the store on disk.
"""
