"""Finds the n-th entry that a cursor has not acknowledged, by arithmetic over positions."""

from __future__ import annotations

from brokers.domain.position import Position
from brokers.domain.storage_policy import position_before_newest
from brokers.domain.subscriptions.cursor import Cursor, EntriesBetween, before


def nth_open(
    cursor: Cursor, number: int, first: Position, last: Position, entries_between: EntriesBetween
) -> Position | None:
    """Return the ``number``-th unacknowledged entry, from 1; None if there are fewer.

    ``first`` and ``last`` are the kept entries' positions. A batch of which some messages are
    acknowledged counts. Costs a step for each acknowledged interval, a microsecond at most.
    """
    at, left = cursor.mark_delete, number
    for begin, last_entry_id in cursor.ranges:
        # Entries of one ledger are numbered without gaps.
        is_same = begin.ledger_id == at.ledger_id
        gap = begin.entry_id - at.entry_id - 1 if is_same else entries_between(at, before(begin))
        if gap >= left:
            break
        left -= gap
        at = Position(begin.ledger_id, last_entry_id)
    return nth_behind(at, left, first, last, entries_between)


def nth_behind(
    after: Position, number: int, first: Position, last: Position, entries_between: EntriesBetween
) -> Position | None:
    """Return the ``number``-th kept entry behind ``after``, from 1; None if there are fewer."""
    rest = entries_between(after, last) - number
    return None if rest < 0 else position_before_newest(rest, first, last, entries_between)
