"""``unverified_index`` of a journal: up to where the replica may have forgotten what it promised.

    0                 nothing
    an index          entries up to there; term and vote are what they were
    UNCOVERED_INDEX   any entries; the term is at least that of anything it promised
    UNKNOWN_INDEX     any entries, and any term and vote
    BLANK_INDEX       the directory is empty, and it is not known yet whether it ever held a log

An unverified replica may have acknowledged entries or cast votes that it no longer has. It
neither votes nor campaigns until a leader has covered the index (L8). While its term is unknown
too it does not even acknowledge: a leader that the forgotten vote deposed could commit with its
help. ADR 0048 has the reasoning and calls the index ``doubt_index``. The values are stored: never
change them.
"""

from __future__ import annotations

UNKNOWN_INDEX = 2**63 - 1
UNCOVERED_INDEX = 2**63 - 2
BLANK_INDEX = 2**63 - 3


def is_term_unknown(unverified_index: int) -> bool:
    """Return whether the replica may have voted or acknowledged in a later term than its own."""
    return unverified_index in (UNKNOWN_INDEX, BLANK_INDEX)
