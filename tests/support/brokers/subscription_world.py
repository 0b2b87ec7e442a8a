"""One topic, one subscription and its consumers, on a ledger in memory whose moods can be set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from brokers.adapters.ledger.memory_ledger import MemoryLedger, MemoryLedgers, MemoryLedgerStore
from brokers.domain.position import Position
from brokers.domain.subscriptions.ack_set import words_of
from brokers.ports.client_info import ClientInfo
from brokers.ports.consumer import Dispatch
from brokers.ports.ledger import Entry, NewEntry
from brokers.service.subscriptions.subscription import (
    NO_EPOCH,
    Ack,
    Consumer,
    ConsumerRequest,
    KeySharedRequest,
    Subscription,
    SubscriptionKind,
    SubscriptionStart,
    cursor_key,
)
from nextgen.pulsar.payload import message_payload
from protos.pulsar.PulsarApi_pb2 import MessageMetadata

NOW_MS = 1_800_000_000_000
EARLIEST = SubscriptionStart(is_earliest=True)


class MoodyLedger:
    """A memory ledger that may have to read from disk, be slow to store, or fail."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self.inner = ledger
        self.is_cold = False
        """Nothing is in memory: reading waits."""
        self.read_error: Exception | None = None
        self.reads = 0
        self.state_writes: list[bytes | None] = []
        self._held: list[Callable[[], None]] | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def read_recent(
        self, after: Position, *, entries_max: int, bytes_max: int
    ) -> Sequence[Entry] | None:
        if self.is_cold:
            return None
        return self.inner.read_recent(after, entries_max=entries_max, bytes_max=bytes_max)

    async def read(self, after: Position, *, entries_max: int, bytes_max: int) -> Sequence[Entry]:
        self.reads += 1
        await asyncio.sleep(0)
        if self.read_error is not None:
            raise self.read_error
        return await self.inner.read(after, entries_max=entries_max, bytes_max=bytes_max)

    def hold_state(self) -> None:
        """Store nothing until ``release_state``."""
        self._held = self._held or []

    def release_state(self) -> None:
        held, self._held = self._held or [], None
        for store in held:
            store()

    def put_state(self, key: str, value: bytes | None) -> asyncio.Future[None]:
        self.state_writes.append(value)
        if self._held is None:
            return self.inner.put_state(key, value)
        outer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def store() -> None:
            inner = self.inner.put_state(key, value)
            inner.add_done_callback(lambda done: _copy(done, outer))

        self._held.append(store)
        return outer


def _copy(done: asyncio.Future[None], outer: asyncio.Future[None]) -> None:
    error = done.exception()
    if error is None:
        outer.set_result(None)
    else:
        outer.set_exception(error)


class FakeConsumer:
    """A client's consumer: a sink, and what can be done with it."""

    def __init__(self, world: SubscriptionWorld, request: ConsumerRequest) -> None:
        self.world = world
        self.is_writable = True
        self.client = ClientInfo("127.0.0.1:1", "test")
        self.ends = 0
        self.received: list[Dispatch] = []
        self.active: list[bool] = []
        self.ended: str | None = None
        self.watch: Callable[[FakeConsumer, Dispatch], None] | None = None
        self.consumer: Consumer = world.subscription.add_consumer(request, self)

    def deliver(self, dispatches: Sequence[Dispatch]) -> None:
        assert dispatches, "nothing was delivered"
        for dispatch in dispatches:
            if self.watch is not None:
                self.watch(self, dispatch)
            self.received.append(dispatch)

    def active_changed(self, *, is_active: bool) -> None:
        self.active.append(is_active)

    def reached_end(self) -> None:
        self.ends += 1

    def end(self, broker_url: str) -> None:
        self.ended = broker_url

    @property
    def positions(self) -> list[Position]:
        return [dispatch.entry.position for dispatch in self.received]

    @property
    def numbers(self) -> list[int]:
        """The sequence ids of what was received."""
        return [dispatch.entry.sequence_id for dispatch in self.received]

    @property
    def counts(self) -> list[int]:
        return [dispatch.redelivery_count for dispatch in self.received]

    def flow(self, permits: int) -> None:
        self.world.subscription.flow(self.consumer, permits)

    def ack(self, *positions: Position, open_bits: int = 0) -> asyncio.Future[None]:
        acks = [Ack(position, words_of(open_bits)) for position in positions]
        return self.world.subscription.acknowledge(self.consumer, acks, is_cumulative=False)

    def ack_up_to(self, position: Position, open_bits: int = 0) -> asyncio.Future[None]:
        ack = Ack(position, words_of(open_bits))
        return self.world.subscription.acknowledge(self.consumer, [ack], is_cumulative=True)

    def nack(self, *positions: Position) -> None:
        self.world.subscription.redeliver(self.consumer, positions, NO_EPOCH)

    def redeliver_all(self, consumer_epoch: int = NO_EPOCH) -> None:
        self.world.subscription.redeliver(self.consumer, None, consumer_epoch)

    def resume(self) -> None:
        self.is_writable = True
        self.world.subscription.resumed(self.consumer)

    def leave(self) -> None:
        self.world.subscription.remove_consumer(self.consumer)

    def forget(self) -> None:
        """Ignore everything delivered so far."""
        self.received.clear()


class SubscriptionWorld:
    """A subscription named ``sub`` of one topic; ``take_over`` moves it to another owner."""

    subscription: Subscription

    def __init__(self, *, segment_bytes: int = 2**20) -> None:
        self.now_ms = NOW_MS
        self.disk = MemoryLedgers()
        self._segment_bytes = segment_bytes
        self._epoch = 0
        self._published = 0
        self._arrivals = 0
        self.ledger: MoodyLedger

    async def open(
        self,
        kind: SubscriptionKind,
        start: SubscriptionStart = EARLIEST,
        *,
        partition: int = -1,
    ) -> SubscriptionWorld:
        await self.open_ledger()
        await self.create(kind, start, partition=partition)
        return self

    async def create(
        self, kind: SubscriptionKind, start: SubscriptionStart = EARLIEST, *, partition: int = -1
    ) -> Subscription:
        """Make the subscription, on a ledger that is open already."""
        self.subscription = await Subscription.create(
            "sub", start, self.ledger, self.clock, kind=kind, partition=partition
        )
        self.ledger.inner.on_appended(self.subscription.appended)
        return self.subscription

    async def take_over(self) -> None:
        """Another owner opens the topic; this one may have died at any moment."""
        is_cold = self.ledger.is_cold
        await self.open_ledger()
        self.ledger.is_cold = is_cold
        stored = self.ledger.inner.state[cursor_key("sub")]
        self.subscription = Subscription.recover("sub", stored, self.ledger, self.clock)
        self.ledger.inner.on_appended(self.subscription.appended)

    async def open_ledger(self) -> None:
        self._epoch += 1
        store = MemoryLedgerStore(
            self.disk, segment_bytes=self._segment_bytes, now_ms=lambda: self.now_ms
        )
        self.ledger = MoodyLedger(
            await store.open("topic", "", self._epoch, topic_name="persistent://a/b/c")
        )

    def clock(self) -> int:
        return self.now_ms

    def join(
        self,
        name: str = "",
        *,
        permits: int = 0,
        priority_level: int = 0,
        key_shared: KeySharedRequest | None = None,
        consumer_epoch: int = NO_EPOCH,
        kind: SubscriptionKind | None = None,
    ) -> FakeConsumer:
        self._arrivals += 1
        request = ConsumerRequest(
            consumer_id=self._arrivals,
            name=name or f"consumer-{self._arrivals}",
            kind=self.subscription.kind if kind is None else kind,
            priority_level=priority_level,
            key_shared=key_shared,
            consumer_epoch=consumer_epoch,
        )
        consumer = FakeConsumer(self, request)
        if permits:
            consumer.flow(permits)
        return consumer

    async def publish(
        self,
        count: int = 1,
        *,
        messages: int = 1,
        key: str = "",
        deliver_at_ms: int = 0,
        chunk: tuple[str, int, int] | None = None,
        body_bytes: int = 4,
        stamp: tuple[int, int] | None = None,
    ) -> list[Position]:
        """Append entries; ``chunk`` is uuid, number and how many there are, ``stamp`` the lowest
        and the highest bucket hash."""
        appended = []
        for _ in range(count):
            metadata = MessageMetadata(
                producer_name="p", sequence_id=self._published, publish_time=self.now_ms
            )
            if messages > 1:
                metadata.num_messages_in_batch = messages
            if key:
                metadata.partition_key = key
            if deliver_at_ms:
                metadata.deliver_at_time = deliver_at_ms
            if chunk is not None:
                metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg = chunk
            if stamp is not None:
                metadata.entry_hash_min, metadata.entry_hash_max = stamp
            payload = message_payload(metadata, bytes(body_bytes))
            appended.append(
                self.ledger.inner.append(NewEntry(payload, messages, "p", self._published))
            )
            self._published += 1
        positions = [await each for each in appended]
        await settle()
        return positions


async def settle() -> None:
    """Let everything that can run without time passing do so."""
    for _ in range(20):
        await asyncio.sleep(0)
