"""How much a replica may have forgotten: the values of ``doubt_index`` in its journal.

    0                 nothing
    an index          entries up to there; term and vote are what they were
    UNCOVERED_INDEX   any entries; the term is at least that of anything it promised
    UNKNOWN_INDEX     any entries, and any term and vote
    BLANK_INDEX       the directory is empty, and it is not known yet whether it ever held a log

A replica in doubt neither votes nor campaigns (L8). While its term is unknown too it must not
even acknowledge: a leader that was deposed by its forgotten vote could commit with its help.
ADR 0048 has the reasoning. The values are stored: never change them.
"""

from __future__ import annotations

UNKNOWN_INDEX = 2**63 - 1
UNCOVERED_INDEX = 2**63 - 2
BLANK_INDEX = 2**63 - 3


def is_term_unknown(doubt_index: int) -> bool:
    """Return whether the replica may have voted or acknowledged in a later term than its own."""
    return doubt_index in (UNKNOWN_INDEX, BLANK_INDEX)
