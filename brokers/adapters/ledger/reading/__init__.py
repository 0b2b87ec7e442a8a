"""Reads a unit's entries, the newest from memory and others from disk, for owners and others.
It writes nothing. ``store`` and ``disk_ledger`` call it.
"""
