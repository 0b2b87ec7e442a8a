"""Who owns a unit: claims, fences, seals, and what earlier epochs left behind (ADR 0019, 0038).
A fenced owner acknowledges nothing more. The store, owners and readers call it.
"""
