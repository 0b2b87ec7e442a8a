"""Ledger stores: on disk (``store``) and in memory (``memory_ledger``)."""
