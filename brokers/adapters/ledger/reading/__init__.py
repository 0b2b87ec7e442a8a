"""Entries of a unit, from the newest in memory and from segments on disk, for owner or guest.
It writes nothing. ``store`` and ``disk_ledger`` call it.
"""
