"""Exclusive and Failover: one consumer gets everything, in order.

There is no state per entry. The unacknowledged entries are those between the cursor and the read
position, so redelivery is reading them again.
"""

from __future__ import annotations

from collections.abc import Sequence

from brokers.domain.position import Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.ack_set import all_open, words_of
from brokers.domain.subscriptions.cursor import Cursor
from brokers.domain.subscriptions.kind import SubscriptionKind
from brokers.ports.consumer import Dispatch
from brokers.ports.ledger import Entry
from brokers.service.subscriptions.consumer import Consumer
from brokers.service.subscriptions.dispatch.dispatcher import UNBOUNDED
from brokers.service.subscriptions.reader import EntrySource
from nextgen.kernel.limits.pulsar import CURSOR_HOLES_PAUSE, DISPATCH_ENTRIES_MAX


class SingleActiveDispatcher:
    """Dispatches to the active consumer only. Redeliveries are not counted, as in Pulsar."""

    unacked_messages = 0
    delayed_entries = 0
    next_due_at_ms: int | None = None

    def __init__(
        self, kind: SubscriptionKind, partition: int, cursor: Cursor, source: EntrySource
    ) -> None:
        self.consumers: list[Consumer] = []
        self.active: Consumer | None = None
        self._kind = kind
        self._partition = partition
        self._cursor = cursor
        self._source = source
        self._read = cursor.mark_delete
        self._sent = cursor.highest

    def attach(self, consumer: Consumer) -> None:
        """Add a consumer. A second Exclusive one is refused with ConsumerBusy."""
        if self._kind is SubscriptionKind.EXCLUSIVE and self.consumers:
            raise Refusal(ServerError.CONSUMER_BUSY, "exclusive consumer is already connected")
        self.consumers.append(consumer)
        if not self._elect() and self._kind is SubscriptionKind.FAILOVER:
            consumer.sink.active_changed(is_active=False)

    def detach(self, consumer: Consumer) -> None:
        """Remove a consumer; if it was the active one, another begins at the cursor."""
        self.consumers.remove(consumer)
        if consumer is self.active:
            self.active = None
            self.rewind()
            if self.consumers:
                self._elect()

    def acked(self, consumer: Consumer, position: Position, *, messages_left: int) -> None:
        """Do nothing: reading skips entries that the cursor has."""

    def passed_over(self, up_to: Position) -> None:
        """Do nothing: reading continues behind the cursor."""

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, consumer_epoch: int
    ) -> None:
        """Begin again at the cursor: redelivering single entries would break the order.

        Only requests of the active consumer count. Later messages carry its new epoch, so that it
        can discard those that were sent before.
        """
        if consumer is not self.active:
            return
        consumer.epoch = max(consumer.epoch, consumer_epoch)
        self.rewind()

    def send_again(self, positions: Sequence[Position]) -> None:
        """Do nothing: the entries are sent again at the next restart at the cursor, to keep the
        order."""

    def rewind(self) -> None:
        """Read from the cursor on."""
        self._read = self._cursor.mark_delete
        if self._cursor.is_plain:
            self._sent = self._read

    def use_unacked(self, most: int) -> None:
        """Do nothing: as in Pulsar, only consumers that share are bounded."""

    def run(self, messages_max: int = UNBOUNDED) -> bool:
        """Send the next entries to the active consumer."""
        consumer = self.active
        if consumer is None or not consumer.is_ready:
            return False
        cursor = self._cursor
        read = self._read = cursor.end_of_run(max(self._read, cursor.mark_delete))
        if read >= self._sent and cursor.holes >= CURSOR_HOLES_PAUSE:
            return False
        permits = min(consumer.permits, messages_max)
        entries = self._source.after(read, entries_max=min(permits, DISPATCH_ENTRIES_MAX))
        if entries and cursor.holes >= CURSOR_HOLES_PAUSE:
            entries = [entry for entry in entries if entry.position <= self._sent]
        if not entries:
            return False
        dispatches = self._dispatches(consumer, entries, permits)
        self._sent = max(self._sent, self._read)
        if dispatches:
            consumer.deliver(dispatches)
        return consumer.is_ready

    def _dispatches(
        self, consumer: Consumer, entries: Sequence[Entry], permits: int
    ) -> list[Dispatch]:
        cursor, epoch, permits_before = self._cursor, consumer.epoch, permits
        is_plain = cursor.is_plain
        dispatches = []
        position = self._read
        for entry in entries:
            if permits <= 0:
                break
            position = entry.position
            words: Sequence[int] = ()
            count = entry.message_count
            if not is_plain:
                if cursor.is_acked(position):
                    continue
                mask = cursor.partial.get(position, 0) & all_open(count)
                if mask:
                    words, count = words_of(mask), mask.bit_count()
            permits -= count
            dispatches.append(Dispatch(entry, 0, words, epoch))
        consumer.permits += permits - permits_before
        self._read = position
        return dispatches

    def _elect(self) -> bool:
        """Choose the active consumer; return whether it changed.

        It is the oldest consumer of the best priority level. For a partitioned topic, consumers are
        ordered by name instead, and partitions are distributed over them, as in Pulsar.
        """
        lowest = min(consumer.priority_level for consumer in self.consumers)
        level = [each for each in self.consumers if each.priority_level == lowest]
        if self._partition < 0:
            chosen = min(level, key=lambda consumer: consumer.arrival)
        else:
            level.sort(key=lambda consumer: (consumer.name, consumer.arrival))
            chosen = level[self._partition % len(level)]
        if chosen is self.active:
            return False
        self.active = chosen
        self.rewind()
        if self._kind is SubscriptionKind.FAILOVER:
            for consumer in self.consumers:
                consumer.sink.active_changed(is_active=consumer is chosen)
        return True
