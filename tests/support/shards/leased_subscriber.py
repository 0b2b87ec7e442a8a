"""A subscriber with a leased watch at a shard's hub, and a hub over a log in memory for it.

It takes an update when a test says so, and acknowledges nothing by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from prometheus_client import CollectorRegistry

from nextgen.client.wire.errors import from_detail
from nextgen.kernel.errors import MetadataError, NotLeader
from nextgen.replication.ports import Record
from protos.nextgen.v1.events_pb2 import (
    DecidedCommand,
    Event,
    TopicAssigned,
    TopicCreated,
    TopicPartitionsGrown,
    TopicUnassigned,
)
from protos.nextgen.v1.inventory_pb2 import KIND_ASSIGNMENT
from protos.nextgen.v1.shard_service_pb2 import WatchAdd, WatchRenew, WatchShardUpdate
from shards.metrics import NodeMetrics, ShardMetrics
from shards.watches.change_hub import ChangeHub
from shards.watches.effective_writes import AcknowledgingStream, EffectiveWrites, Subscription
from tests.support.logs.dict_state_machine import DictStateMachine
from tests.support.logs.memory_log import MemoryLog
from tests.support.shards.harness import VirtualClock
from tests.support.simulated.virtual_time import run_virtual

SHARD = 1
WATCH_ID = 1

_AT_ONCE_MAX = 100
_OTHERS_MAX = 100
"""Updates of the stream between two of the leased watch: few, because that has its own."""


class LeasedSubscriber:
    """A stream whose first watch is a leased one, of all assignments unless ``add`` narrows it."""

    def __init__(
        self, hub: ChangeHub, subscriber_id: str = "discovery-1", from_position: int = 0, **add: Any
    ) -> None:
        self.stream = hub.open(subscriber_id)
        self._taking: asyncio.Task[WatchShardUpdate] | None = None
        wanted = {
            "watch_id": WATCH_ID,
            "kinds": [KIND_ASSIGNMENT],
            "from_position": from_position,
            "without_snapshot": True,
            "leased": True,
        }
        self.stream.add(WatchAdd(**{**wanted, **add}))

    async def take(self) -> WatchShardUpdate:
        """Return the next update of the leased watch.

        Raises:
            MetadataError: The watch has ended, or its stream has.
        """
        taking = self._begin()
        self._taking = None
        return await taking

    async def has_update(self) -> bool:
        """Return whether an update is there without any time passing."""
        taking = self._begin()
        for _ in range(30):
            await asyncio.sleep(0)
        return taking.done()

    async def drain(self) -> WatchShardUpdate | None:
        """Take every update that is there; return the last."""
        last = None
        for _ in range(_AT_ONCE_MAX):
            if not await self.has_update():
                return last
            last = await self.take()
        raise AssertionError(f"more than {_AT_ONCE_MAX} updates without any time passing")

    async def until(self, position: int) -> list[WatchShardUpdate]:
        """Take updates until one carries ``position``; return all of them."""
        taken = [await self.take()]
        while taken[-1].position < position:
            taken.append(await self.take())
        return taken

    def acknowledge(
        self,
        position: int,
        asked_at_ms: int = 0,
        *,
        creations_may_wait: bool = False,
        may_rest: bool = False,
    ) -> None:
        renew = WatchRenew(
            acked_position=position,
            asked_at_ms=asked_at_ms,
            creations_may_wait=creations_may_wait,
            may_rest=may_rest,
        )
        self.stream.renew(renew)

    def close(self) -> None:
        """Break the stream."""
        if self._taking is not None:
            self._taking.cancel()
        self.stream.close()

    def _begin(self) -> asyncio.Task[WatchShardUpdate]:
        if self._taking is None:
            self._taking = asyncio.ensure_future(self._next())
        return self._taking

    async def _next(self) -> WatchShardUpdate:
        for _ in range(_OTHERS_MAX):
            update = await self.stream.next_update()
            if update.watch_id != WATCH_ID:
                continue
            if update.HasField("error"):
                raise from_detail(update.error)
            return update
        raise AssertionError(f"{_OTHERS_MAX} updates, and none of the leased watch")


class LeaseWorld:
    """A replica that leads: its log, its hub, and what waits for subscriptions."""

    def __init__(self) -> None:
        self.log = MemoryLog(DictStateMachine())
        self.metrics = NodeMetrics(CollectorRegistry())
        self.lead()
        self.hub = ChangeHub(
            SHARD,
            self.log,
            _no_view,
            ShardMetrics(self.metrics, SHARD).watches,
            join=self._join,
            wait_commit=_never,
        )

    def lead(self) -> None:
        """Begin a term."""
        self.effective = EffectiveWrites(SHARD, self.log, VirtualClock())

    def end_term(self) -> None:
        self.effective.close(NotLeader(SHARD, "elsewhere:1"))

    def subscribe(
        self, subscriber_id: str = "discovery-1", from_position: int = 0, **add: Any
    ) -> LeasedSubscriber:
        return LeasedSubscriber(self.hub, subscriber_id, from_position, **add)

    async def commit(self, *events: Event) -> int:
        """Commit one record and return the position of its last event."""
        payload = DecidedCommand(time_ms=1, events=events).SerializeToString()
        commit = await self.log.propose(Record(payload, len(events)))
        return commit.first_position + len(events) - 1

    def wait_moved(self, position: int, *names: str) -> asyncio.Task[None]:
        """Wait, in a task, until no subscriber answers with assignments of ``names`` that ended at
        ``position``; without names, with any."""
        ended = {(KIND_ASSIGNMENT, name) for name in names}
        return asyncio.create_task(self.effective.wait_assigned(position, ended, ()))

    def _join(self, stream: AcknowledgingStream, *, is_leased: bool = False) -> Subscription:
        return self.effective.join(stream, is_leased=is_leased)


def in_lease_world(scenario: Callable[[LeaseWorld], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in virtual time."""

    async def main() -> None:
        await scenario(LeaseWorld())

    run_virtual(main)


def assigned(name: str, epoch: int = 1, broker_id: str = "broker-1") -> Event:
    event = TopicAssigned(name=name, epoch=epoch, broker_id=broker_id, session_id="s", topic_id="i")
    return Event(topic_assigned=event)


def unassigned(name: str, epoch: int = 1) -> Event:
    return Event(topic_unassigned=TopicUnassigned(name=name, epoch=epoch, topic_id="i"))


def created(name: str) -> Event:
    return Event(topic_created=TopicCreated(name=name))


def grown(name: str, partitions: int) -> Event:
    return Event(topic_partitions_grown=TopicPartitionsGrown(name=name, partitions=partitions))


async def subscribed(
    it: LeaseWorld, subscriber_id: str = "discovery-1", **add: Any
) -> LeasedSubscriber:
    """Return a subscriber that has taken in and acknowledged everything that there is."""
    subscriber = it.subscribe(subscriber_id, **add)
    last = await subscriber.drain()
    assert last is not None, "a first update comes at once"
    subscriber.acknowledge(last.position)
    return subscriber


async def to_its_end(
    subscriber: LeasedSubscriber,
) -> tuple[list[WatchShardUpdate], MetadataError]:
    """Take updates until the watch ends; return them, and why it did."""
    taken = []
    try:
        for _ in range(_AT_ONCE_MAX):
            taken.append(await subscriber.take())
    except MetadataError as error:
        return taken, error
    raise AssertionError("the watch has not ended")


async def refusal_of(subscriber: LeasedSubscriber) -> MetadataError:
    """Take updates until the watch ends; return why it did."""
    _, error = await to_its_end(subscriber)
    return error


def _no_view() -> Any:
    raise AssertionError("a leased watch has no snapshot")


async def _never() -> None:
    await asyncio.Event().wait()
