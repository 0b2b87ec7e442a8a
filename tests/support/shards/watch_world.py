"""A shard whose changes are watched, in memory: log, view, hub, and subscribers as clients are.

A subscriber takes the updates of its stream through ``WatchPlaces``, as ``ShardWatch`` does, so
what its listeners were told is what a client's would be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from nextgen.client.changes.index import change_of
from nextgen.client.changes.watch_places import WatchPlaces
from nextgen.client.log.wire import filled_events
from nextgen.kernel.errors import MetadataError, NotLeader
from nextgen.replication.view.store import ViewStore
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import Item
from protos.nextgen.v1.shard_service_pb2 import WatchAdd, WatchRenew, WatchShardUpdate
from shards.adapters.loop_clock import LoopClock
from shards.metrics import NodeMetrics, ShardMetrics
from shards.projections.fold import fold
from shards.projections.tables import METADATA
from shards.watches.change_hub import ChangeHub
from shards.watches.change_stream import ChangeStream
from shards.watches.effective_writes import AcknowledgingStream, EffectiveWrites
from shards.watches.effective_writes import Subscription as AcknowledgingSubscriber
from shards.wire.event import DomainEvent
from tests.support.logs.memory_log import MemoryLog
from tests.support.shards.events import record_of

SHARD = 1


class Recorder:
    """A ``WatchListener`` that records what it received since the last reset."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.events: list[Event] = []
        self.position = 0
        self.snapshot_position: int | None = None
        self.resets = 0
        self.error: MetadataError | None = None

    @property
    def positions(self) -> list[int]:
        return [event.position for event in self.events]

    def on_reset(self) -> None:
        self.resets += 1
        self.items, self.events, self.position = [], [], 0
        self.snapshot_position = None

    def on_items(self, items: Sequence[Item]) -> None:
        assert self.snapshot_position is None, "items behind the snapshot's end"
        self.items.extend(items)

    def on_snapshot_complete(self, position: int) -> None:
        self.snapshot_position = position

    def on_events(self, events: Sequence[Event]) -> None:
        self.events.extend(events)

    def on_position(self, position: int) -> None:
        assert position > self.position, "a position moved back, or stood"
        self.position = position

    def on_ended(self, error: MetadataError) -> None:
        self.error = error


class Subscriber:
    """One subscriber with one stream; reconnects on demand."""

    def __init__(self, world: WatchWorld, subscriber_id: str) -> None:
        self.world = world
        self.subscriber_id = subscriber_id
        self.places = WatchPlaces()
        self.updates: list[WatchShardUpdate] = []
        """What came over the present stream."""
        self.stream: ChangeStream | None = None
        self._sent = self._sent_leased = 0
        self._ids: set[int] = set()

    def connect(self) -> ChangeStream:
        self.disconnect()
        self.stream = self.world.hub.open(self.subscriber_id)
        self.updates = []
        self._sent = self._sent_leased = 0
        self._ids = set()
        for add in self.places.requests():
            self.stream.add(add)
        return self.stream

    def disconnect(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.places.disconnected()
            self.stream = None

    def watch(self, listener: Any = None, **wanted: Any) -> Any:
        """Watch with a recorder, or with ``listener``, and return it."""
        recorder = listener or Recorder()
        on_lease = wanted.pop("on_lease", None)
        filled = {
            "prefix": "",
            "names": (),
            "from_position": 0,
            "without_snapshot": False,
            "leased": False,
        }
        watch_id = self.places.add(recorder, **{**filled, **wanted}, on_lease=on_lease)  # type: ignore[arg-type]
        if self.stream is not None:
            self.stream.add(self.places.request(watch_id))
        recorder.watch_id = watch_id
        return recorder

    def ask(self, **add: Any) -> None:
        """Send an ``add`` past the client, whatever it holds."""
        assert self.stream is not None, "connect first"
        self.stream.add(WatchAdd(**add))

    async def step(self) -> WatchShardUpdate:
        """Take one update."""
        assert self.stream is not None, "connect first"
        async with timeout(20):
            update = await self.stream.next_update()
        self._check_sent_once(update)
        self.updates.append(update)
        if update.HasField("error"):
            return update
        ended = self.places.take(update, asyncio.get_running_loop().time())
        for watch_id in ended:
            self.stream.remove(watch_id)
        return update

    async def until(self, done: Callable[[], bool]) -> None:
        """Take updates until ``done``."""
        while not done():
            await self.step()

    async def until_position(self, position: int) -> None:
        """Apply updates until every watch has everything up to ``position``."""
        await self.until(
            lambda: all(
                self.places.position_of(each.watch_id) >= position
                for each in self.places.requests()
            )
        )

    def _check_sent_once(self, update: WatchShardUpdate) -> None:
        """No event is sent twice to those that are level; a client would leave the second out.

        With one watch alone this holds for all updates together. A leased watch has its own.
        """
        if update.watch_id and update.watch_id == self.places.leased_id:
            if update.reset:
                self._sent_leased = 0
            for event in update.events:
                assert event.position > self._sent_leased, f"event {event.position} was sent twice"
                self._sent_leased = event.position
            return
        self._ids.add(update.watch_id)
        if update.reset:
            self._sent = 0
        if update.watch_id and len(self._ids - {0}) > 1:
            return
        for event in update.events:
            assert event.position > self._sent, f"event {event.position} was sent twice"
            self._sent = event.position

    def acknowledge(self) -> None:
        """Acknowledge what the leased watch, or the acknowledged ones, received."""
        assert self.stream is not None, "connect first"
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        acked, behind = self.places.taken_in()
        if self.places.leased_position is not None:
            acked = self.places.leased_position
        renew = WatchRenew(acked_position=acked, asked_at_ms=now_ms, behind=behind)
        self.stream.renew(renew)


class WatchWorld:
    """One replica. Make it with ``in_watch_world``."""

    def __init__(self, directory: Path) -> None:
        self.view = ViewStore(directory / "view", METADATA, fold)
        self.log = MemoryLog(self.view)
        self.metrics = NodeMetrics(CollectorRegistry())
        self.effective: EffectiveWrites | None = None
        self.subscribers: list[Subscriber] = []
        self.hub = ChangeHub(
            SHARD,
            self.log,
            self.view.read_transaction,
            ShardMetrics(self.metrics, SHARD).watches,
            join=self._join,
            wait_commit=self._wait_commit,
        )

    def subscriber(self, subscriber_id: str = "subscriber-1") -> Subscriber:
        """Return a subscriber whose stream is open."""
        subscriber = Subscriber(self, subscriber_id)
        subscriber.connect()
        self.subscribers.append(subscriber)
        return subscriber

    async def commit(self, *events: DomainEvent) -> int:
        """Commit one record and return the position of its last event."""
        commit = await self.log.propose(record_of(events))
        return commit.first_position + len(events) - 1

    def history(self) -> list[Event]:
        """Return the whole log as it can be read at this moment."""
        oldest = self.log.status.first_position
        entries = self.log.read(oldest, events_max=1_000_000, bytes_max=1_000_000_000)
        return [event for entry in entries for event in filled_events(entry, SHARD)]

    def lead(self) -> EffectiveWrites:
        """Begin to lead: serve leased and acknowledged watches."""
        self.effective = EffectiveWrites(SHARD, self.log, LoopClock())
        self.effective.expect_managers((), term=1)
        return self.effective

    def counted(self, name: str) -> int:
        """Return a counter of the node."""
        return self.metrics.counters()[name]

    async def close(self) -> None:
        for subscriber in self.subscribers:
            subscriber.disconnect()
        if self.effective is not None:
            self.effective.close(NotLeader(SHARD))
        await self.log.stop()

    def _join(
        self, stream: AcknowledgingStream, *, is_leased: bool = False
    ) -> AcknowledgingSubscriber:
        if self.effective is None:
            raise NotLeader(SHARD)
        return self.effective.join(stream, is_leased=is_leased)

    async def _wait_commit(self) -> None:
        committed = asyncio.Event()
        unsubscribe = self.log.on_commit(lambda _entries: committed.set())
        try:
            await committed.wait()
        finally:
            unsubscribe()


def in_watch_world(
    directory: Path, scenario: Callable[[WatchWorld], Coroutine[Any, Any, None]]
) -> None:
    """Run a scenario on the clock of the wall: the view is read on threads."""

    async def main() -> None:
        world = WatchWorld(directory)
        try:
            await scenario(world)
        finally:
            await world.close()

    asyncio.run(main())


def concerning(events: Sequence[Event], kinds: Sequence[int], prefix: str) -> list[int]:
    """Return the positions of the events that a watch of ``kinds`` and ``prefix`` must receive."""
    found = [(event.position, change_of(event)) for event in events]
    return [
        position
        for position, change in found
        if change is not None and change[0] in kinds and change[1].startswith(prefix)
    ]
