"""The common part of Shared and Key_Shared: a sent entry belongs to one consumer until it is
acknowledged, and skipped entries are remembered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from brokers.domain.position import Position
from brokers.domain.subscriptions.ack_set import all_open, words_of
from brokers.domain.subscriptions.cursor import Cursor, before
from brokers.domain.subscriptions.delayed import DelayedEntries
from brokers.domain.subscriptions.redelivery import RedeliveryCounts
from brokers.ports.consumer import Dispatch
from brokers.ports.ledger import Entry
from brokers.service.subscriptions.consumer import NO_EPOCH, Consumer
from brokers.service.subscriptions.dispatch.dispatcher import UNBOUNDED
from brokers.service.subscriptions.reader import EntrySource
from nextgen.kernel.limits.pulsar import (
    CURSOR_HOLES_PAUSE,
    DISPATCH_BYTES_MAX,
    DISPATCH_ENTRIES_MAX,
    REPLAY_ENTRIES_PAUSE,
    SUBSCRIPTION_UNACKED_MAX,
)


class IndividualDispatcher(ABC):
    """Counts and bounds unacknowledged entries, and takes them back from consumers that leave or
    return them.

    ``now_ms`` is the wall clock: clients set the due time of a delayed entry by theirs.
    """

    active: Consumer | None = None

    def __init__(self, cursor: Cursor, source: EntrySource, now_ms: Callable[[], int]) -> None:
        self.consumers: list[Consumer] = []
        self.unacked_messages = 0
        self.unacked_max = SUBSCRIPTION_UNACKED_MAX
        self._cursor = cursor
        self._source = source
        self._now_ms = now_ms
        self._read = cursor.mark_delete
        self._sent = cursor.highest
        self._counts = RedeliveryCounts()
        self._delayed = DelayedEntries()
        # The consumer of every unacknowledged entry. There may be a thousand consumers.
        self._owners: dict[Position, Consumer] = {}
        self._is_blocked = False
        # State of one turn: the entries for each consumer, and how many more may be sent.
        self._outbox: dict[Consumer, list[Dispatch]] = {}
        self._entries_left = 0
        self._bytes_left = 0
        self._messages_left = 0
        self._window: dict[Position, Entry] = {}

    @property
    def delayed_entries(self) -> int:
        """Number of delayed entries that are not due yet."""
        return len(self._delayed)

    @property
    def next_due_at_ms(self) -> int | None:
        """The time at which the first of them is due."""
        return self._delayed.next_at_ms

    def attach(self, consumer: Consumer) -> None:
        """Add a consumer."""
        self._joining(consumer)
        self.consumers.append(consumer)
        self._members_changed()

    def detach(self, consumer: Consumer) -> None:
        """Remove a consumer; the others get its entries, with one more redelivery counted."""
        self.consumers.remove(consumer)
        positions = self._take_all(consumer)
        self._counts.increment(positions)
        self._leaving(consumer)
        self._members_changed()
        if self.consumers:
            self._put_back(positions)
        else:
            self.rewind()

    def acked(self, consumer: Consumer, position: Position, *, messages_left: int) -> None:
        """Count an acknowledgement, whichever consumer was sent the entry."""
        owner = self._owners.get(position)
        was_sent = owner is not None
        if owner is not None:
            consumer = owner
            self._taken(consumer.let_go(position, messages_left=messages_left))
        if messages_left:
            return
        self._owners.pop(position, None)
        self._counts.forget(position)
        if was_sent:
            self._settled(consumer, position)
        self._withdraw(position)

    def passed_over(self, up_to: Position) -> None:
        """Drop sent and waiting entries up to this one for good."""
        for consumer in self.consumers:
            for position in [each for each in consumer.unacked if each <= up_to]:
                self.acked(consumer, position, messages_left=0)
        for position in self._waiting_up_to(up_to):
            self._counts.forget(position)
            self._withdraw(position)

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, consumer_epoch: int
    ) -> None:
        """Take entries back from ``consumer``, and send them to any consumer. Entries that it does
        not have are ignored."""
        if positions is None:
            taken = self._take_all(consumer)
        else:
            taken = []
            for position in positions:
                if position in consumer.unacked:
                    self._take(consumer, position)
                    taken.append(position)
        if taken:
            # A consumer that returns messages can handle others, even if over half are left.
            consumer.is_blocked = False
        self._counts.increment(taken)
        self._put_back(taken)

    def send_again(self, positions: Sequence[Position]) -> None:
        """Take entries back from their consumers, and send them again."""
        for consumer in self.consumers:
            self.redeliver(consumer, positions, NO_EPOCH)

    def rewind(self) -> None:
        """Forget sent and waiting entries, and read from the cursor on."""
        for consumer in self.consumers:
            self._take_all(consumer)
        self._delayed.clear()
        self._read = self._cursor.mark_delete
        if self._cursor.is_plain:
            self._sent = self._read
        self._rewound()

    def use_unacked(self, most: int) -> None:
        """Set how many messages all consumers together may leave unacknowledged."""
        self.unacked_max = most
        self._is_blocked = self.unacked_messages >= most

    def run(self, messages_max: int = UNBOUNDED) -> bool:
        """Send waiting entries first, then entries that were not read yet."""
        due = [each for each in self._delayed.pop_due(self._now_ms()) if self._is_open(each)]
        self._put_back(due)
        if self._is_blocked or not any(consumer.is_ready for consumer in self.consumers):
            return False
        self._entries_left, self._bytes_left = DISPATCH_ENTRIES_MAX, DISPATCH_BYTES_MAX
        self._messages_left = messages_max
        is_stuck = not self._send_waiting()
        if not is_stuck:
            is_stuck = not self._send_next()
        self._window = {}
        outbox, self._outbox = self._outbox, {}
        for consumer, dispatches in outbox.items():
            # Sending to one consumer may have closed the connection of another.
            if consumer in self.consumers:
                consumer.deliver(dispatches)
        return not is_stuck

    @property
    def _is_turn_over(self) -> bool:
        is_spent = self._entries_left <= 0 or self._bytes_left <= 0 or self._messages_left <= 0
        return is_spent or self._is_blocked

    def _send_next(self) -> bool:
        """Dispatch entries that were not read yet; return whether there may be more at once."""
        while not self._is_turn_over:
            entries = self._next_entries()
            if not entries:
                return False
            now_ms = self._now_ms()
            for entry in entries:
                if not self._cursor.is_plain and self._cursor.is_acked(entry.position):
                    self._passed(entry.position)
                    continue
                is_full = self._waiting_count >= REPLAY_ENTRIES_PAUSE or self._delayed.is_full
                if is_full or not self._send_one(entry, now_ms):
                    return False
                if self._is_turn_over:
                    break
        return True

    def _next_entries(self) -> Sequence[Entry] | None:
        """Return the next entries to dispatch; None: they are being read."""
        self._read = self._cursor.end_of_run(max(self._read, self._cursor.mark_delete))
        is_full = self._cursor.holes >= CURSOR_HOLES_PAUSE
        if is_full and self._read >= self._sent:
            return ()
        permits = sum(each.permits for each in self.consumers if each.is_ready)
        wanted = min(permits, self._entries_left, self._messages_left)
        entries = self._source.after(self._read, entries_max=wanted)
        if entries and is_full:
            # The cursor has too many holes: redeliver only, which closes holes. New entries would
            # make more.
            return [entry for entry in entries if entry.position <= self._sent]
        return entries

    def _find(self, position: Position, length: int) -> tuple[Entry | None, bool]:
        """Return a waiting entry, and whether it could be read without waiting.

        ``length``: number of entries from it on that are likely to be needed next.
        """
        if position not in self._window:
            entries = self._source.after(before(position), entries_max=length)
            if entries is None:
                return None, False
            self._window = {entry.position: entry for entry in entries}
        return self._window.get(position), True

    def _passed(self, position: Position) -> None:
        self._read = position
        self._sent = max(self._sent, position)

    def _hand(self, entry: Entry, consumer: Consumer) -> None:
        """Add an entry to those that ``consumer`` gets at the end of the turn."""
        position, count = entry.position, entry.message_count
        words: Sequence[int] = ()
        if self._cursor.partial:
            mask = self._cursor.partial.get(position, 0) & all_open(count)
            if mask:
                words, count = words_of(mask), mask.bit_count()
        consumer.permits -= count
        consumer.hold(position, count)
        self._owners[position] = consumer
        self.unacked_messages += count
        if self.unacked_messages >= self.unacked_max:
            self._is_blocked = True
        self._entries_left -= 1
        self._messages_left -= count
        self._bytes_left -= len(entry.payload)
        dispatch = Dispatch(entry, self._counts.of(position), words, NO_EPOCH)
        self._outbox.setdefault(consumer, []).append(dispatch)

    def _is_open(self, position: Position) -> bool:
        return not self._cursor.is_acked(position)

    def _taken(self, messages: int) -> None:
        self.unacked_messages -= messages
        if self._is_blocked and self.unacked_messages <= self.unacked_max // 2:
            self._is_blocked = False

    def _take_all(self, consumer: Consumer) -> list[Position]:
        positions = list(consumer.unacked)
        self._taken(consumer.let_go_all())
        for position in positions:
            del self._owners[position]
            self._settled(consumer, position)
        return positions

    def _take(self, consumer: Consumer, position: Position) -> None:
        del self._owners[position]
        self._taken(consumer.let_go(position))
        self._settled(consumer, position)

    @abstractmethod
    def _joining(self, consumer: Consumer) -> None:
        """Prepare for a new consumer; may raise ``Refusal``."""

    @abstractmethod
    def _leaving(self, consumer: Consumer) -> None:
        """A consumer has left, and its entries were taken back."""

    @abstractmethod
    def _members_changed(self) -> None:
        """``consumers`` has changed."""

    @abstractmethod
    def _settled(self, consumer: Consumer, position: Position) -> None:
        """An entry was taken back from ``consumer``."""

    @abstractmethod
    def _withdraw(self, position: Position) -> None:
        """An entry was acknowledged: drop its state."""

    @abstractmethod
    def _waiting_up_to(self, up_to: Position) -> list[Position]:
        """Remove the state of entries up to this one, delayed ones included; return their
        positions."""

    @abstractmethod
    def _put_back(self, positions: Iterable[Position]) -> None:
        """Queue these entries, before those that were not read yet."""

    @abstractmethod
    def _rewound(self) -> None:
        """Forget what waits."""

    @abstractmethod
    def _send_waiting(self) -> bool:
        """Dispatch waiting entries; return whether reading on makes sense in this turn."""

    @property
    @abstractmethod
    def _waiting_count(self) -> int:
        """Number of waiting entries, which come before those that were not read yet."""

    @abstractmethod
    def _send_one(self, entry: Entry, now_ms: int) -> bool:
        """Dispatch an unacknowledged entry, or let it wait; return whether to read on."""
