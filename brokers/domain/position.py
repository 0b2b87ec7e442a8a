"""Positions of entries in a topic."""

from __future__ import annotations

from typing import NamedTuple

_SEGMENT_BITS = 20
SEGMENTS_PER_EPOCH_MAX = 1 << _SEGMENT_BITS


class Position(NamedTuple):
    """Ledger and entry, as in Pulsar's message ids. Positions of one topic order its entries.

    A ledger is one segment file. Its id combines the epoch that wrote it with the segment's number
    in that epoch, so a later owner's ledgers always have higher ids. Entries of a ledger count from
    0.
    """

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


BEFORE_ALL = Position(-1, -1)
"""Lower than every entry's position."""


def ledger_id_of(epoch: int, segment: int) -> int:
    """Return the id of the ``segment``-th segment (from 0) that ``epoch`` wrote."""
    assert 0 <= segment < SEGMENTS_PER_EPOCH_MAX, f"no epoch has a segment {segment}"
    return epoch << _SEGMENT_BITS | segment


def epoch_of(ledger_id: int) -> int:
    """Return the epoch that wrote a ledger."""
    return ledger_id >> _SEGMENT_BITS


def segment_of(ledger_id: int) -> int:
    """Return the number of the segment within its epoch."""
    return ledger_id & SEGMENTS_PER_EPOCH_MAX - 1
