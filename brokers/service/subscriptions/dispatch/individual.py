"""What Shared and Key_Shared have in common: every entry that was sent is somebody's until it is
acknowledged, and what was passed over is remembered."""

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
from brokers.service.subscriptions.reader import EntrySource
from nextgen.kernel.limits.pulsar import (
    CURSOR_HOLES_PAUSE,
    DISPATCH_BYTES_MAX,
    DISPATCH_ENTRIES_MAX,
    REPLAY_ENTRIES_PAUSE,
    SUBSCRIPTION_UNACKED_MAX,
)


class IndividualDispatcher(ABC):
    """Counts what is out, bounds it, and takes it back from whoever goes or does not want it.

    ``now_ms`` is the wall clock: clients say with theirs when a delayed entry is due.
    """

    def __init__(self, cursor: Cursor, source: EntrySource, now_ms: Callable[[], int]) -> None:
        self.consumers: list[Consumer] = []
        self.unacked_messages = 0
        self._cursor = cursor
        self._source = source
        self._now_ms = now_ms
        self._read = cursor.mark_delete
        self._sent = cursor.highest
        self._counts = RedeliveryCounts()
        self._delayed = DelayedEntries()
        # Of every entry that is out, the consumer it was sent to: there may be a thousand.
        self._owners: dict[Position, Consumer] = {}
        self._is_blocked = False
        # Of one turn: what goes to whom, and how much more may go.
        self._outbox: dict[Consumer, list[Dispatch]] = {}
        self._entries_left = 0
        self._bytes_left = 0
        self._window: dict[Position, Entry] = {}

    @property
    def delayed_entries(self) -> int:
        """Entries whose time has not come."""
        return len(self._delayed)

    @property
    def next_due_at_ms(self) -> int | None:
        """When the first of them is due."""
        return self._delayed.next_at_ms

    def attach(self, consumer: Consumer) -> None:
        """Take in a consumer."""
        self._joining(consumer)
        self.consumers.append(consumer)
        self._members_changed()

    def detach(self, consumer: Consumer) -> None:
        """Let go of a consumer; the others get its entries, counted as sent once more."""
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
        """Count an acknowledgement, whoever of the consumers was sent the entry."""
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
        """Take back, for good, what is out and what waits up to an entry."""
        for consumer in self.consumers:
            for position in [each for each in consumer.unacked if each <= up_to]:
                self.acked(consumer, position, messages_left=0)
        for position in self._waiting_up_to(up_to):
            self._counts.forget(position)
            self._withdraw(position)

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, consumer_epoch: int
    ) -> None:
        """Take entries back from ``consumer`` and send them to any. What it has not is ignored."""
        if positions is None:
            taken = self._take_all(consumer)
        else:
            taken = []
            for position in positions:
                if position in consumer.unacked:
                    self._take(consumer, position)
                    taken.append(position)
        if taken:
            # Whoever gives messages back can handle others, even if it has more than half left.
            consumer.is_blocked = False
        self._counts.increment(taken)
        self._put_back(taken)

    def send_again(self, positions: Sequence[Position]) -> None:
        """Take entries back from whoever has them, and send them again."""
        for consumer in self.consumers:
            self.redeliver(consumer, positions, NO_EPOCH)

    def rewind(self) -> None:
        """Forget what is out and what waits, and read from the cursor on."""
        for consumer in self.consumers:
            self._take_all(consumer)
        self._delayed.clear()
        self._read = self._cursor.mark_delete
        if self._cursor.is_plain:
            self._sent = self._read
        self._rewound()

    def run(self) -> bool:
        """Send what waits, then what was not read yet."""
        due = [each for each in self._delayed.pop_due(self._now_ms()) if self._is_open(each)]
        self._put_back(due)
        if self._is_blocked or not any(consumer.is_ready for consumer in self.consumers):
            return False
        self._entries_left, self._bytes_left = DISPATCH_ENTRIES_MAX, DISPATCH_BYTES_MAX
        is_stuck = not self._send_waiting()
        if not is_stuck:
            is_stuck = not self._send_next()
        self._window = {}
        outbox, self._outbox = self._outbox, {}
        for consumer, dispatches in outbox.items():
            # Sending to one may have cost the connection of another.
            if consumer in self.consumers:
                consumer.deliver(dispatches)
        return not is_stuck

    @property
    def _is_turn_over(self) -> bool:
        return self._entries_left <= 0 or self._bytes_left <= 0 or self._is_blocked

    def _send_next(self) -> bool:
        """Hand out what was not read yet; return whether there may be more to do at once."""
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
        """Return what is to be read next; None: later."""
        self._read = self._cursor.end_of_run(max(self._read, self._cursor.mark_delete))
        is_full = self._cursor.holes >= CURSOR_HOLES_PAUSE
        if is_full and self._read >= self._sent:
            return ()
        permits = sum(each.permits for each in self.consumers if each.is_ready)
        entries = self._source.after(self._read, entries_max=min(permits, self._entries_left))
        if entries and is_full:
            # Only what was sent before: it closes holes, and what lies behind it makes new ones.
            return [entry for entry in entries if entry.position <= self._sent]
        return entries

    def _find(self, position: Position, length: int) -> tuple[Entry | None, bool]:
        """Return an entry that waits, and whether it could be looked for without waiting.

        ``length``: how many from it on are likely to be asked for next.
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
        """Put an entry into what ``consumer`` is sent at the end of the turn."""
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
        if self.unacked_messages >= SUBSCRIPTION_UNACKED_MAX:
            self._is_blocked = True
        self._entries_left -= 1
        self._bytes_left -= len(entry.payload)
        dispatch = Dispatch(entry, self._counts.of(position), words, NO_EPOCH)
        self._outbox.setdefault(consumer, []).append(dispatch)

    def _is_open(self, position: Position) -> bool:
        return not self._cursor.is_acked(position)

    def _taken(self, messages: int) -> None:
        self.unacked_messages -= messages
        if self._is_blocked and self.unacked_messages <= SUBSCRIPTION_UNACKED_MAX // 2:
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
        """A consumer is about to be taken in; may refuse."""

    @abstractmethod
    def _leaving(self, consumer: Consumer) -> None:
        """A consumer is gone, and what it had was taken back."""

    @abstractmethod
    def _members_changed(self) -> None:
        """``consumers`` is not what it was."""

    @abstractmethod
    def _settled(self, consumer: Consumer, position: Position) -> None:
        """An entry that ``consumer`` had is not its any more."""

    @abstractmethod
    def _withdraw(self, position: Position) -> None:
        """An entry was acknowledged: whatever is known of it may be forgotten."""

    @abstractmethod
    def _waiting_up_to(self, up_to: Position) -> list[Position]:
        """Return what is known of entries up to one, those that are delayed included."""

    @abstractmethod
    def _put_back(self, positions: Iterable[Position]) -> None:
        """These entries are to be sent, before what was not read yet."""

    @abstractmethod
    def _rewound(self) -> None:
        """Forget what waits."""

    @abstractmethod
    def _send_waiting(self) -> bool:
        """Hand out what waits; return whether reading on makes sense in this turn."""

    @property
    @abstractmethod
    def _waiting_count(self) -> int:
        """Entries that wait to be sent, before what was not read yet."""

    @abstractmethod
    def _send_one(self, entry: Entry, now_ms: int) -> bool:
        """Hand out an open entry, or put it where it waits; return whether reading may go on."""
