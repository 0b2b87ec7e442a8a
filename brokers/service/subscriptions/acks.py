"""Applies the acknowledgements of ACKs to a cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from brokers.domain.position import Position
from brokers.domain.subscriptions.cursor import Cursor, before
from brokers.ports.ledger import LedgerReader
from brokers.service.subscriptions.consumer import Consumer
from brokers.service.subscriptions.dispatch.dispatcher import Dispatcher


class Ack(NamedTuple):
    """One message id of an ACK."""

    position: Position
    ack_set: Sequence[int] = ()
    """Of a batch, a bit for each message that is *not* acknowledged. Empty: the whole entry."""
    batch_size: int = 0
    """Number of messages in the batch, 0 if the client did not set it."""


class Acknowledger:
    """Applies only acknowledgements of existing entries: any other would stay a hole for ever."""

    def __init__(self, cursor: Cursor, ledger: LedgerReader) -> None:
        self._cursor = cursor
        self._ledger = ledger

    def ack_each(
        self, dispatcher: Dispatcher, consumer: Consumer, acks: Sequence[Ack]
    ) -> list[Position]:
        """Acknowledge entries one by one; return those for which the cursor has no room."""
        return [ack.position for ack in acks if not self._ack_one(dispatcher, consumer, ack)]

    def ack_up_to(self, ack: Ack) -> None:
        """Acknowledge everything before an entry, and the entry as far as ``ack_set`` says."""
        position = ack.position
        if position > self._ledger.last:
            return
        if not any(ack.ack_set):
            self._cursor.ack_up_to(position)
            return
        self._cursor.ack_up_to(before(position))
        self.ack_part(ack)

    def ack_part(self, ack: Ack) -> None:
        """Acknowledge the messages of a batch that are not in ``ack_set``."""
        if self._exists(ack.position):
            self._cursor.ack_part(ack.position, ack.ack_set, ack.batch_size)

    def _ack_one(self, dispatcher: Dispatcher, consumer: Consumer, ack: Ack) -> bool:
        cursor, position = self._cursor, ack.position
        if position <= cursor.mark_delete:
            return True
        if position not in consumer.unacked and not self._exists(position):
            return True
        if not cursor.has_room_for(position):
            return False
        left = 0
        if any(ack.ack_set):
            cursor.ack_part(position, ack.ack_set, ack.batch_size)
            left = cursor.partial.get(position, 0).bit_count()
        else:
            cursor.ack(position)
        dispatcher.acked(consumer, position, messages_left=left)
        return True

    def _exists(self, position: Position) -> bool:
        last = self._ledger.last
        if position.ledger_id == last.ledger_id:
            return 0 <= position.entry_id <= last.entry_id
        return self._ledger.entries_between(before(position), position) == 1
