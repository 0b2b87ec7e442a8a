"""Moves of slots between shards: the target's keeper, the source's answers, what both clean up.

See ``docs/flows/slot-moves.md``.
"""
