"""A subscription: its cursor, its consumers, and the dispatch to them.

Everything runs on one event loop. Only reads from disk and writes of the cursor wait. Every event
that may make dispatch possible (an append, permits, an acknowledgement, a consumer that connects,
leaves or can be written to again) schedules one turn. A turn sends a bounded number of entries and
schedules the next behind everything else that is ready, so that subscriptions share the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from brokers.domain.position import Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.cursor import Cursor, before
from brokers.domain.subscriptions.cursor_record import decode_cursor, encode_cursor
from brokers.domain.subscriptions.kind import SubscriptionKind
from brokers.ports.consumer import ConsumerSink
from brokers.ports.ledger import TopicLedger
from brokers.service.client_limits.broker_clients import Claim
from brokers.service.subscriptions.acks import Ack, Acknowledger
from brokers.service.subscriptions.consumer import (
    NO_EPOCH,
    Consumer,
    ConsumerRequest,
    KeySharedRequest,
)
from brokers.service.subscriptions.cursor_writer import CursorWriter, cursor_key, settled
from brokers.service.subscriptions.departures import Departures
from brokers.service.subscriptions.dispatch.dispatcher import Dispatcher
from brokers.service.subscriptions.dispatch.kinds import new_dispatcher
from brokers.service.subscriptions.end_of_topic import EndOfTopic
from brokers.service.subscriptions.reader import EntrySource
from brokers.service.subscriptions.reconnect import ReconnectWait
from brokers.service.subscriptions.sending import Sending
from brokers.service.subscriptions.start import SubscriptionStart, sought, start_of
from brokers.service.subscriptions.stats import SubscriptionStats
from brokers.service.subscriptions.turns import Turns
from brokers.service.traffic import Rate
from nextgen.kernel.limits.pulsar import SUBSCRIPTION_CONSUMERS_MAX

__all__ = [
    "NO_EPOCH",
    "Ack",
    "Consumer",
    "ConsumerRequest",
    "KeySharedRequest",
    "Subscription",
    "SubscriptionKind",
    "SubscriptionStart",
    "cursor_key",
]

_logger = structlog.get_logger(__name__)


class Subscription:
    """One subscription of one topic unit, durable or not.

    Made by ``create`` or ``recover``. ``clock`` gives wall-clock milliseconds.
    """

    def __init__(
        self,
        name: str,
        kind: SubscriptionKind,
        cursor: Cursor,
        ledger: TopicLedger,
        clock: Callable[[], int],
        *,
        is_durable: bool,
        properties: Mapping[str, str],
        partition: int = -1,
    ) -> None:
        self.name = name
        self.kind = kind
        self.is_durable = is_durable
        self.properties = properties
        self.cursor = cursor
        """The acknowledgements. Only this subscription changes them."""
        self._ledger = ledger
        self._clock = clock
        self._partition = partition
        self._acks = Acknowledger(cursor, ledger)
        self._turns = Turns(self._dispatch, self._next_due_at_ms, clock)
        self.sending = Sending(self._turns.ask)
        self._source = EntrySource(ledger, on_ready=self._turns.ask, on_failed=self._read_failed)
        self._writer = CursorWriter(ledger, cursor_key(name), self._encoded) if is_durable else None
        self._dispatcher = self._new_dispatcher()
        self.sending.begin(self._dispatcher)
        self._failed: Callable[[Exception], None] | None = None
        self._over: Callable[[], None] | None = None
        self._reconnect = ReconnectWait(self._not_reconnected)
        self._arrivals = 0
        self._is_seeking = False
        self._is_closed = False
        self._end_of_topic = EndOfTopic()
        self.departures = Departures()
        self.rate = Rate()

    @classmethod
    async def create(
        cls,
        name: str,
        start: SubscriptionStart,
        ledger: TopicLedger,
        clock: Callable[[], int],
        *,
        kind: SubscriptionKind = SubscriptionKind.EXCLUSIVE,
        partition: int = -1,
    ) -> Subscription:
        """Make a subscription that did not exist. A durable one is stored before this returns.

        ``partition`` is the topic's number among the partitions of a partitioned one, else -1.

        Raises:
            Fenced, StorageFailed: It could not be stored.
        """
        mark_delete = await start_of(start, ledger, clock())
        subscription = cls(
            name,
            kind,
            Cursor(mark_delete, ledger.entries_between),
            ledger,
            clock,
            is_durable=start.is_durable,
            properties=dict(start.properties),
            partition=partition,
        )
        await subscription._store()
        return subscription

    @classmethod
    def recover(
        cls,
        name: str,
        stored: bytes,
        ledger: TopicLedger,
        clock: Callable[[], int],
        *,
        partition: int = -1,
    ) -> Subscription:
        """Restore a durable subscription from its stored cursor."""
        record = decode_cursor(stored, ledger.entries_between)
        parts = name, record.kind, record.cursor, ledger, clock
        return cls(*parts, is_durable=True, properties=record.properties, partition=partition)

    def __repr__(self) -> str:
        state = f"consumers={len(self.consumers)} backlog={self.backlog_entries}"
        return f"<Subscription {self.name!r} {self.kind.name} {state}>"

    @property
    def consumers(self) -> Sequence[Consumer]:
        """The connected consumers."""
        return self._dispatcher.consumers

    @property
    def active_consumer(self) -> Consumer | None:
        """The consumer that gets everything, of Exclusive and Failover."""
        return self._dispatcher.active

    @property
    def mark_delete(self) -> Position:
        """The mark-delete position. The stored one of a durable subscription may be lower."""
        return self.cursor.mark_delete

    @property
    def backlog_entries(self) -> int:
        """Number of unacknowledged entries."""
        behind = self._ledger.entries_between(self.mark_delete, self._ledger.last)
        return max(0, behind - self.cursor.ranges.count)

    @property
    def is_drained(self) -> bool:
        """Whether everything is acknowledged."""
        return self.backlog_entries == 0

    @property
    def is_over(self) -> bool:
        """Whether the subscription has ended: deleted, or non-durable and without consumers.

        A non-durable one whose consumers were disconnected by a seek waits for them.
        """
        if self._is_closed:
            return True
        return not self.is_durable and not self.consumers and not self._reconnect.is_waiting

    def on_failed(self, listener: Callable[[Exception], None]) -> None:
        """Call ``listener`` when entries cannot be read: dispatch has then stopped."""
        self._failed = listener

    def on_over(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when ``is_over`` becomes true, unless by a call of a method."""
        self._over = listener

    def on_drained(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when all of a terminated topic is acknowledged: see ``EndOfTopic``."""
        self._end_of_topic.on_drained = listener

    def stats(self) -> SubscriptionStats:
        """Return the present statistics."""
        messages_out, bytes_out = self.sending.total(self.consumers)
        return SubscriptionStats(
            name=self.name,
            kind=self.kind,
            is_durable=self.is_durable,
            consumers=len(self.consumers),
            backlog_entries=self.backlog_entries,
            unacked_messages=self._dispatcher.unacked_messages,
            delayed_entries=self._dispatcher.delayed_entries,
            mark_delete=self.mark_delete,
            messages_out=messages_out,
            bytes_out=bytes_out,
            properties=self.properties,
        )

    def add_consumer(
        self, request: ConsumerRequest, sink: ConsumerSink, claim: Claim | None = None
    ) -> Consumer:
        """Connect a consumer. It gets no message before ``flow``. Its leaving releases ``claim``.

        Raises:
            Refusal: ConsumerBusy (an Exclusive consumer, consumers of another kind, or too many
                are connected), ConsumerAssignError (its key ranges are taken), MetadataError (a
                seek is running: try again).
        """
        if self._is_closed or self._is_seeking:
            raise _closed()
        problem = ""
        if len(self.consumers) >= SUBSCRIPTION_CONSUMERS_MAX:
            problem = f"subscription has {SUBSCRIPTION_CONSUMERS_MAX} consumers already"
        elif request.kind is not self.kind and self.consumers:
            problem = f"subscription is {self.kind.name}, consumer wants {request.kind.name}"
        if problem:
            raise Refusal(ServerError.CONSUMER_BUSY, problem)
        if request.kind is not self.kind:
            self._change_kind(request.kind)
        self._arrivals += 1
        consumer = Consumer(request, sink, self._arrivals, self._clock(), claim)
        self.sending.joins(consumer)
        self._dispatcher.attach(consumer)
        self._reconnect.end()
        self._turns.ask()
        return consumer

    def remove_consumer(self, consumer: Consumer) -> None:
        """Disconnect a consumer; the others get its unacknowledged entries, in order."""
        if consumer not in self.consumers:
            return
        self.sending.leaves(consumer)
        self._dispatcher.detach(consumer)
        self._turns.ask()
        self.departures.note()

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Add permits to ``consumer``.

        Raises:
            Refusal: TooManyRequests beyond ``CONSUMER_PERMITS_MAX``.
        """
        consumer.add_permits(permits)
        self._turns.ask()

    def resumed(self, consumer: Consumer) -> None:
        """Resume dispatch to a consumer whose connection can be written to again."""
        self._turns.ask()

    def appended(self) -> None:
        """Dispatch new entries, which the ledger has just acknowledged."""
        if self.consumers:
            self._turns.ask()

    def acknowledge(
        self,
        consumer: Consumer,
        acks: Sequence[Ack],
        *,
        is_cumulative: bool,
        is_awaited: bool = True,
    ) -> asyncio.Future[None]:
        """Acknowledge entries, or parts of batches. Entries that do not exist are ignored.

        The future is fulfilled when that is durable. It fails with ``Fenced`` or ``StorageFailed``,
        or with ``Refusal`` (TooManyRequests) if the cursor has too many holes for some of them,
        which are then redelivered. With ``is_awaited`` False (an ACK without request id) the future
        is fulfilled at once, and storing may take longer.

        Raises:
            Refusal: NotAllowedError for a cumulative acknowledgement with Shared or Key_Shared;
                nothing is changed.
        """
        if is_cumulative and not self.kind.is_single_active:
            raise Refusal(ServerError.NOT_ALLOWED, f"cumulative ack on {self.kind.name}")
        if self._is_seeking or self._is_closed:
            return settled(_closed() if is_awaited else None)
        refused = self._apply(consumer, acks, is_cumulative)
        if not is_awaited:
            return settled(None)
        if refused:
            message = f"{len(refused)} acks would make too many holes"
            return settled(Refusal(ServerError.TOO_MANY_REQUESTS, message))
        return self.stored()

    def pass_over(self, up_to: Position) -> bool:
        """Acknowledge everything up to an entry: it expired, or the backlog is too large.

        During a seek it does nothing and returns False.
        """
        if self._is_seeking or self._is_closed:
            return False
        if self.cursor.ack_up_to(up_to):
            self._dispatcher.passed_over(up_to)
            if self._writer is not None:
                self._writer.changed()
            self._turns.ask()
        return True

    async def use_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the properties; return when that is durable. Raises as ``seek``."""
        if self._is_seeking or self._is_closed:
            raise _closed()
        self.properties = dict(properties)
        await self._store()

    def topic_terminated(self) -> None:
        """Nothing more is appended: notify each consumer once everything is acknowledged."""
        self._end_of_topic.is_terminated = True
        self._turns.ask()

    def stored(self) -> asyncio.Future[None]:
        """Return a future that is done when all acknowledgements so far are durable."""
        return settled(None) if self._writer is None else self._writer.stored()

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, consumer_epoch: int
    ) -> None:
        """Redeliver unacknowledged entries of ``consumer``: the named ones; None: all of them."""
        if self._is_seeking or self._is_closed or consumer not in self.consumers:
            return
        self._dispatcher.redeliver(consumer, positions, consumer_epoch)
        self._turns.ask()

    async def seek(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        """Make ``position`` the next entry; of a batch, only the messages in ``ack_set``.

        The two ends of a topic have the positions that clients use for them. All consumers are
        closed *before* the answer, as in Pulsar: clients expect CLOSE_CONSUMER, then SUCCESS, then
        they reconnect and discard prefetched messages.

        Raises:
            Refusal: MetadataError: another seek is running.
            Fenced, StorageFailed: The cursor could not be stored.
        """
        mark_delete, next_entry = sought(position, self._ledger)
        partial = None if next_entry is None or not any(ack_set) else Ack(next_entry, ack_set)
        await self.reset(mark_delete, partial)

    async def seek_to_time(self, publish_time_ms: int) -> None:
        """Seek to the first entry that was published at or after a time; see ``seek``."""
        await self.reset(await self._ledger.before_time(publish_time_ms))

    async def delete(self, consumer: Consumer | None = None, *, is_forced: bool = False) -> None:
        """Unsubscribe. ``consumer``, which requested it, is disconnected without a close command.

        Raises:
            Refusal: MetadataError: there are other consumers, and it is not forced.
            Fenced, StorageFailed: The deletion could not be stored.
        """
        others = [each for each in self.consumers if each is not consumer]
        if self._is_seeking or self._is_closed or (others and not is_forced):
            raise Refusal(ServerError.METADATA, "subscription has other consumers, or is going")
        self._stop()
        try:
            if self._writer is not None:
                self._writer.close(_closed())
                await self._ledger.put_state(cursor_key(self.name), None)
        finally:
            self._end(others, "")

    async def settle(self, timeout_ms: int) -> None:
        """Return when all acknowledgements so far are stored, or that failed or takes too long."""
        if self._writer is not None:
            await self._writer.settle(timeout_ms)

    async def close(self, broker_url: str) -> None:
        """Redirect the consumers, to ``broker_url`` if there is one, and store the cursor.

        It waits at most ``CURSOR_CLOSE_MS_MAX`` for storage.
        """
        if self._is_closed:
            return
        self._stop()
        self._end(list(self.consumers), broker_url)
        if self._writer is None:
            return
        if not await self._writer.settle():
            _logger.info("cursor not stored", subscription=self.name)
        self._writer.close(_closed())

    def _apply(
        self, consumer: Consumer, acks: Sequence[Ack], is_cumulative: bool
    ) -> list[Position]:
        refused: list[Position] = []
        if is_cumulative:
            for ack in acks:
                self._acks.ack_up_to(ack)
        else:
            refused = self._acks.ack_each(self._dispatcher, consumer, acks)
            if refused:
                self._dispatcher.send_again(refused)
        if self._writer is not None:
            self._writer.changed()
        self._turns.ask()
        return refused

    async def reset(self, mark_delete: Position, partial: Ack | None = None) -> None:
        """Set the cursor, forwards or backwards, as ``seek`` does."""
        if self._is_seeking or self._is_closed:
            raise _closed()
        self._is_seeking = True
        try:
            self.cursor.reset(mark_delete)
            if partial is not None:
                self._acks.ack_part(partial)
            self._dispatcher.rewind()
            await self._store()
            if not self.is_durable:
                self._reconnect.begin()
            self._end(list(self.consumers), "")
        finally:
            self._is_seeking = False
            self._end_of_topic.restart()
            self._turns.ask()

    def _not_reconnected(self) -> None:
        if self.is_over and self._over is not None:
            self._over()

    async def _store(self) -> None:
        if self._writer is not None:
            self._writer.changed()
            await self._writer.stored()

    def _encoded(self) -> bytes:
        return encode_cursor(self.cursor, self.kind, self.properties)

    def _end(self, consumers: Sequence[Consumer], broker_url: str) -> None:
        for consumer in consumers:
            self.remove_consumer(consumer)
            consumer.sink.end(broker_url)

    def _stop(self) -> None:
        self._is_closed = True
        self.sending.use_rates(())
        self._source.close()
        self._turns.close()
        self._reconnect.end()

    def _change_kind(self, kind: SubscriptionKind) -> None:
        self.kind = kind
        self._dispatcher = self._new_dispatcher()
        self.sending.begin(self._dispatcher)
        if self._writer is not None:
            self._writer.changed()

    def _new_dispatcher(self) -> Dispatcher:
        return new_dispatcher(self.kind, self._partition, self.cursor, self._source, self._clock)

    def _dispatch(self) -> bool:
        if not self.is_durable:
            # Retention does not wait for this subscription: dropped entries cannot be acknowledged.
            gone = before(self._ledger.first)
            if self.cursor.ack_up_to(gone):
                self._dispatcher.passed_over(gone)
        if self._is_seeking or self._is_closed:
            return False
        if self._end_of_topic.is_terminated:
            self._end_of_topic.look(self.consumers, is_drained=self.is_drained)
        return bool(self.consumers) and self.sending.run()

    def _next_due_at_ms(self) -> int | None:
        return self._dispatcher.next_due_at_ms if self.consumers else None

    def _read_failed(self, error: Exception) -> None:
        _logger.error("subscription cannot read", subscription=self.name, error=str(error))
        if self._failed is not None:
            self._failed(error)


def _closed() -> Refusal:
    return Refusal(ServerError.METADATA, "subscription is being closed or reset")
