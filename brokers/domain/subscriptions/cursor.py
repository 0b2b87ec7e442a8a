"""How far a subscription is: everything it will never send again.

That is all entries up to the mark-delete position, the entries behind it that were acknowledged
one by one (intervals), and of some batches the messages that were (a bit each). The cursor is pure:
whoever owns it stores it, with ``cursor_record``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from brokers.domain.position import Position
from brokers.domain.subscriptions.ack_set import all_open, mask_of, word_count
from brokers.domain.subscriptions.acked_ranges import AckedRanges
from nextgen.kernel.limits.pulsar import CURSOR_HOLES_MAX

EntriesBetween = Callable[[Position, Position], int]
"""How many entries are stored in (after, up to]: ``TopicLedger.entries_between``."""


def before(position: Position) -> Position:
    """Return a position lower than ``position`` and not lower than any entry below it."""
    return Position(position.ledger_id, position.entry_id - 1)


class Cursor:
    """What one subscription has acknowledged."""

    __slots__ = ("_entries_between", "_holes_max", "_words", "mark_delete", "partial", "ranges")

    def __init__(
        self,
        mark_delete: Position,
        entries_between: EntriesBetween,
        *,
        holes_max: int = CURSOR_HOLES_MAX,
    ) -> None:
        self.mark_delete = mark_delete
        """Every entry up to here, this one included, is acknowledged."""
        self.ranges = AckedRanges()
        """Acknowledged entries behind ``mark_delete``."""
        self.partial: dict[Position, int] = {}
        """Of batches that are acknowledged in part, the messages that are still open. Only
        ``put_part`` adds to it."""
        self._words = 0
        self._entries_between = entries_between
        self._holes_max = holes_max

    @property
    def holes(self) -> int:
        """What the cursor's size depends on: intervals and partial batches."""
        return len(self.ranges) + len(self.partial)

    @property
    def is_plain(self) -> bool:
        """Whether the mark-delete position says everything."""
        return not self.ranges.count and not self.partial

    @property
    def highest(self) -> Position:
        """The highest entry that is acknowledged, whole or in part."""
        return max(self.mark_delete, self.ranges.last, *self.partial)

    def end_of_run(self, position: Position) -> Position:
        """Return up to where everything right behind ``position`` is acknowledged."""
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
        """Acknowledge a whole entry that MUST exist; return whether that is news."""
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

        ``message_count`` 0 or less: the size of the batch is not known here. Returns whether the
        whole entry is acknowledged now, so that it is never sent again.
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
        """Have exactly the messages of ``mask``, which is not empty, open of a batch."""
        self._words += word_count(mask) - word_count(self.partial.get(position, 0))
        self.partial[position] = mask

    def ack_up_to(self, position: Position) -> bool:
        """Acknowledge everything up to and including ``position``; return whether that is news."""
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
        """Go to a position, forwards or backwards, and forget all that lies behind it."""
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
