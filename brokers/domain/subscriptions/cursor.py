"""Cursors: the acknowledgements of a subscription, which are the messages it never sends again.

A cursor has the mark-delete position (all entries up to it are acknowledged), the individually
acknowledged entries behind it (intervals), and the acknowledged messages of some batches (a bit
each). The cursor is pure: its owner stores it with ``cursor_record``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from brokers.domain.position import Position
from brokers.domain.subscriptions.ack_set import all_open, mask_of, word_count
from brokers.domain.subscriptions.acked_ranges import AckedRanges
from nextgen.kernel.limits.pulsar import CURSOR_HOLES_MAX

EntriesBetween = Callable[[Position, Position], int]
"""Returns the number of stored entries in (after, up to]: ``TopicLedger.entries_between``."""


def before(position: Position) -> Position:
    """Return a position lower than ``position`` and not lower than any entry below it."""
    return Position(position.ledger_id, position.entry_id - 1)


class Cursor:
    """The acknowledgements of one subscription."""

    __slots__ = ("_entries_between", "_holes_max", "_words", "mark_delete", "partial", "ranges")

    def __init__(
        self,
        mark_delete: Position,
        entries_between: EntriesBetween,
        *,
        holes_max: int = CURSOR_HOLES_MAX,
    ) -> None:
        self.mark_delete = mark_delete
        """Every entry up to and including this one is acknowledged."""
        self.ranges = AckedRanges()
        """Acknowledged entries behind ``mark_delete``."""
        self.partial: dict[Position, int] = {}
        """The unacknowledged messages of batches that are acknowledged in part. Only ``put_part``
        adds to it."""
        self._words = 0
        self._entries_between = entries_between
        self._holes_max = holes_max

    @property
    def holes(self) -> int:
        """Number of intervals and partial batches, which determines the cursor's size."""
        return len(self.ranges) + len(self.partial)

    @property
    def is_plain(self) -> bool:
        """Whether the mark-delete position is the whole cursor."""
        return not self.ranges.count and not self.partial

    @property
    def highest(self) -> Position:
        """The highest entry that is acknowledged completely or in part."""
        return max(self.mark_delete, self.ranges.last, *self.partial)

    def end_of_run(self, position: Position) -> Position:
        """Return the end of the run of acknowledged entries right behind ``position``."""
        return self.ranges.end_of_run(position) if self.ranges.count else position

    def is_acked(self, position: Position) -> bool:
        """Return whether the whole entry is acknowledged."""
        return position <= self.mark_delete or position in self.ranges

    def has_room_for(self, position: Position) -> bool:
        """Return whether acknowledging this entry keeps the cursor within its limit."""
        return (
            len(self.ranges) + self._words < self._holes_max
            or position in self.partial
            or self._is_next(position)
            or self.ranges.is_neighbour(position)
        )

    def ack(self, position: Position) -> bool:
        """Acknowledge a whole entry, which MUST exist; return whether that changed the cursor."""
        if position <= self.mark_delete:
            return False
        if self.partial:
            self._words -= word_count(self.partial.pop(position, 0))
        if not self.ranges.count and self._is_next(position):
            self.mark_delete = position
            return True
        if not self.ranges.add(position):
            return False
        self._advance()
        return True

    def ack_part(self, position: Position, words: Sequence[int], message_count: int) -> bool:
        """Acknowledge the messages of a batch whose bits are *not* set.

        ``message_count`` 0 or less: the size of the batch is not known. Returns whether the whole
        entry is acknowledged now, so that it is never sent again.
        """
        if self.is_acked(position):
            return False
        mask = mask_of(words)
        if 0 < message_count < mask.bit_length():
            mask &= all_open(message_count)
        known = self.partial.get(position)
        if known is not None:
            mask &= known
        if not mask:
            return self.ack(position)
        self.put_part(position, mask)
        return False

    def put_part(self, position: Position, mask: int) -> None:
        """Set the unacknowledged messages of a batch to ``mask``, which is not empty."""
        self._words += word_count(mask) - word_count(self.partial.get(position, 0))
        self.partial[position] = mask

    def ack_up_to(self, position: Position) -> bool:
        """Acknowledge everything up to and including ``position``; return whether that changed
        the cursor."""
        if position <= self.mark_delete:
            return False
        self.mark_delete = position
        self.ranges.remove_up_to(position)
        if self.partial:
            self.partial = {at: mask for at, mask in self.partial.items() if at > position}
            self._words = sum(map(word_count, self.partial.values()))
        self._advance()
        return True

    def reset(self, mark_delete: Position) -> None:
        """Reset to a position, forwards or backwards; drop acknowledgements behind it."""
        self.mark_delete = mark_delete
        self.ranges.clear()
        self.partial.clear()
        self._words = 0

    def _is_next(self, position: Position) -> bool:
        """Return whether no entry is between mark-delete and ``position``."""
        ledger_id, entry_id = self.mark_delete
        if position.ledger_id == ledger_id:
            return position.entry_id == entry_id + 1
        return self._entries_between(self.mark_delete, before(position)) == 0

    def _advance(self) -> None:
        while self.ranges.count and self._is_next(self.ranges.first):
            self.mark_delete = self.ranges.pop_first()
