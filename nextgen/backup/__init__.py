"""Backups of a cluster's metadata at one consistent cut, and their restore (ADR 0092).

The command line calls it. Files go to any store of ``nextgen.export.stores``.
"""
