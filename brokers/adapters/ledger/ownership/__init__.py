"""The ownership of a unit: claims, fences, seals, and the files of earlier epochs (ADR 0019, 0038).
A fenced owner acknowledges nothing more. The store, owners and readers call it.
"""
