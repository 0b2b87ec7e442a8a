"""What do a broker manager's watches take for a broker with 100,000 topics of one namespace?

    python -m benchmarks.inventory.manager_watches [--topics 100000] [--managers 20]

A home shard with all these topics, and a broker manager that follows those of its broker by name,
in one process without sockets; the ends of the stream are the real ones. Prints one JSON line last:

- ``manager_bytes``, ``home_bytes``: resident memory for each topic, at the manager, its snapshot
  included, and at the home shard
- ``namespace_write_us``, ``topic_write_us``: processor time of a policy write, from the commit to
  its acknowledgement by the manager, both sides together; ``..._few_us`` with 100 topics followed
- ``creation_by_name_us``: processor time of a topic of the namespace that another broker gets
- ``creation_by_prefix_us``: the same if as many managers as ``--managers`` follow the namespace by
  its prefix; ``prefix_home_bytes`` what the home shard keeps for one of these watches
- ``prefix_snapshot_ms``: processor time to send one of them its snapshot, all topics of the
  namespace, whoever has them
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from nextgen.kernel.limits.stream import METADATA_GATHER_MS
from protos.nextgen.v1.events_pb2 import BrokerRecorded, Event
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TOPIC, Item, Kind
from protos.nextgen.v1.inventory_pb2 import Namespace as NamespaceMessage
from protos.nextgen.v1.inventory_pb2 import Topic as TopicMessage
from protos.nextgen.v1.shard_service_pb2 import TopicAssignment
from shards.adapters.loop_clock import LoopClock
from shards.domain.namespace import NamespaceCreated, NamespacePoliciesSet
from shards.domain.tenant import TenantCreated
from shards.domain.topic import TopicCreated, TopicPoliciesSet
from shards.sessions.metadata_watch import MetadataWatch
from shards.sessions.session_soft_state import BrokerConnection, SessionSoftState
from tests.support.shards.watch_world import SHARD, Subscriber, WatchWorld

NAMESPACE = "acme/orders"
PREFIX = f"persistent://{NAMESPACE}/"
FEW = 100
WRITES = 200
CREATIONS = 500
PER_RECORD = 1_000
PACKED = b"\x10\x05"
PACKED_LATER = b"\x10\x06"


def topic_of(number: int) -> str:
    return f"{PREFIX}invoices-of-customer-{number:09}"


def topic_id_of(number: int) -> str:
    return f"{number:024x}"


def resident() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Following:
    """``HomeShards`` of one shard, and ``ShardWatching`` of its stream, over a ``Subscriber``."""

    heard_at = 0.0

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        self._in_effect: Callable[[int], int] = lambda position: position

    def home_of(self, _kind: Kind, _name: str) -> int:
        return SHARD

    def manager_shard(self, _broker_id: str) -> int:
        return SHARD

    def note_leader(self, _shard_id: int, _term: int, _node_id: str) -> None:
        """There is one."""

    def watch(self, _shard_id: int, _subscriber_id: str) -> Following:
        return self

    def is_caught_up(self, _watch_id: int) -> bool:
        return True

    def add(self, listener: Any, **wanted: Any) -> int:
        watch_id: int = self.subscriber.watch(_Listener(listener), **wanted).watch_id
        return watch_id

    def acknowledge_with(self, in_effect: Callable[[int], int]) -> None:
        self._in_effect = in_effect

    def withhold_with(self, _withheld: Callable[[], Collection[int]]) -> None:
        """Nothing is withheld."""

    def complete_with(self, _complete_term: Callable[[], int]) -> None:
        """No term is completed here."""

    def acknowledge(self) -> None:
        if self.subscriber.stream is not None:
            self.subscriber.acknowledge()

    def remove(self, watch_id: int) -> None:
        self.subscriber.places.remove(watch_id)
        if self.subscriber.stream is not None:
            self.subscriber.stream.remove(watch_id)

    async def run(self) -> None:
        await asyncio.Event().wait()


class _Listener:
    """Passes everything on, and has a place for the id that ``Subscriber.watch`` notes."""

    watch_id = 0

    def __init__(self, listener: Any) -> None:
        self._listener = listener

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)


class Counting:
    """The listener of a watch by prefix: takes everything in and keeps nothing."""

    watch_id = 0

    def __init__(self) -> None:
        self.items = self.events = 0
        self.is_complete = False

    def on_reset(self) -> None:
        """Nothing is kept."""

    def on_items(self, items: Sequence[Item]) -> None:
        self.items += len(items)

    def on_snapshot_complete(self, _position: int) -> None:
        self.is_complete = True

    def on_events(self, events: Sequence[Event]) -> None:
        self.events += len(events)

    def on_position(self, _position: int) -> None:
        """Nothing is kept."""

    def on_ended(self, error: Exception) -> None:
        raise error


async def take(subscriber: Subscriber, position: int) -> None:
    """Take updates until all watches have everything up to ``position``; keep no record of them."""
    while True:
        reached, behind = subscriber.places.taken_in()
        if reached >= position and not behind:
            return
        await subscriber.step()
        subscriber.updates.clear()


async def load(world: WatchWorld, topics: int) -> int:
    await world.commit(TenantCreated("t-1", "acme"))
    position = await world.commit(NamespaceCreated("n-1", NAMESPACE, "t-1"))
    for start in range(0, topics, PER_RECORD):
        numbers = range(start, min(topics, start + PER_RECORD))
        position = await world.commit(
            *(TopicCreated(topic_id_of(n), topic_of(n), 0, "n-1", 1) for n in numbers)
        )
    return position


class Manager:
    """A broker manager's watch for one broker."""

    def __init__(self, world: WatchWorld) -> None:
        self.world = world
        self.subscriber = Subscriber(world, "manager of node-1")
        self.homes = Following(self.subscriber)
        self.deliveries = 0
        homes: Any = self.homes
        self.watch = MetadataWatch("manager", homes, homes, LoopClock(), self._delivered)
        record = BrokerRecorded(broker_id="broker-1", session_id="session-1")
        self.session = SessionSoftState(record, 0.0)
        self.connection = BrokerConnection(self.session)
        self.session.attach(self.connection, 0)

    def _delivered(self, _kind: str) -> None:
        self.deliveries += 1

    def parents(self) -> None:
        message = NamespaceMessage(namespace_id="n-1", name=NAMESPACE, tenant_id="t-1", version=1)
        item = Item(kind=KIND_NAMESPACE, name=NAMESPACE, namespace=message)
        self.watch.hold(self.session.metadata.note_parent(item)[0])

    def assigned(self, numbers: range) -> list[Any]:
        """Return what the session was sent: the topics are noted, and not followed yet."""
        noted = []
        for number in numbers:
            topic = TopicMessage(topic_id=topic_id_of(number), name=topic_of(number), version=1)
            noted.append(self.session.metadata.note_assigned(TopicAssignment(topic=topic, epoch=1)))
        return noted

    async def follow(self, noted: list[Any]) -> None:
        for sent in noted:
            self.watch.hold(sent)
        # At once if they are many: then the names are gathered for no longer than this.
        await asyncio.sleep(2 * METADATA_GATHER_MS / 1_000)
        if not all(home.is_complete for home in self.watch._home_watches.values()):
            raise AssertionError("names are gathered for longer than they should be")

    async def write_us(self, event: Callable[[int], Any]) -> float:
        """Return the processor time of a write until it is acknowledged, the median of many."""
        spent: list[float] = []
        for version in range(2, WRITES + 2):
            before = self.deliveries
            began = time.process_time()
            position = await self.world.commit(event(version))
            await take(self.subscriber, position)
            self.connection.take_messages()
            self.session.acknowledge(self.session.sequence)
            self.watch.synced()
            spent.append(time.process_time() - began)
            if self.deliveries != before + 1:
                raise AssertionError(f"{self.deliveries - before} deliveries of one write")
        return round(statistics.median(spent) * 1e6, 1)


def namespace_write(first: int) -> Callable[[int], Any]:
    return lambda version: NamespacePoliciesSet(
        NAMESPACE, "n-1", PACKED if version % 2 else PACKED_LATER, first + version
    )


def topic_write(number: int) -> Callable[[int], Any]:
    return lambda version: TopicPoliciesSet(
        topic_of(number), topic_id_of(number), PACKED if version % 2 else PACKED_LATER, version
    )


async def creation_us(world: WatchWorld, first: int, subscribers: list[Subscriber]) -> float:
    began = time.process_time()
    for number in range(first, first + CREATIONS):
        position = await world.commit(
            TopicCreated(topic_id_of(number), topic_of(number), 0, "n-1", 1)
        )
    # A watch that wants none of them hears their positions with the next progress.
    for subscriber in subscribers:
        await take(subscriber, position)
    return round((time.process_time() - began) / CREATIONS * 1e6, 1)


async def measure(directory: Path, topics: int, managers: int) -> dict[str, Any]:
    world = WatchWorld(directory)
    world.lead()
    position = await load(world, topics)
    manager = Manager(world)
    manager.parents()
    manager.subscriber.connect()
    noted = manager.assigned(range(topics))
    await manager.follow(noted[:FEW])
    await take(manager.subscriber, position)
    figures: dict[str, Any] = {
        "namespace_write_few_us": await manager.write_us(namespace_write(0)),
        "topic_write_few_us": await manager.write_us(topic_write(0)),
    }
    manager.subscriber.disconnect()
    before = resident()
    await manager.follow(noted[FEW:])
    at_manager = resident()
    manager.subscriber.connect()
    at_home = resident()
    await take(manager.subscriber, world.log.commit_position)
    states = resident()
    count = topics - FEW
    figures |= {
        "manager_bytes": round((at_manager - before + states - at_home) / count),
        "home_bytes": round((at_home - at_manager) / count),
        "watches": manager.watch.watch_count,
        "namespace_write_us": await manager.write_us(namespace_write(WRITES)),
        "topic_write_us": await manager.write_us(topic_write(topics - 1)),
        "creation_by_name_us": await creation_us(world, topics, [manager.subscriber]),
    }
    figures |= await by_prefix(world, topics, managers, manager.subscriber)
    manager.watch.close()
    await world.close()
    return figures


async def by_prefix(
    world: WatchWorld, topics: int, managers: int, by_name: Subscriber
) -> dict[str, Any]:
    listeners = [Counting() for _ in range(managers)]
    subscribers = [world.subscriber(f"prefix-{number}") for number in range(managers)]
    before = resident()
    for subscriber, listener in zip(subscribers, listeners, strict=True):
        subscriber.watch(listener, kinds=(KIND_TOPIC,), prefix=PREFIX, acknowledged=True)
    prefix_home = resident() - before
    began = time.process_time()
    for subscriber in subscribers:
        await take(subscriber, world.log.commit_position)
    snapshot_ms = (time.process_time() - began) / managers * 1e3
    if not all(each.is_complete and each.items == topics + CREATIONS for each in listeners):
        raise AssertionError("a snapshot is not complete")
    spent = await creation_us(world, topics + CREATIONS, [by_name, *subscribers])
    if not all(each.events == CREATIONS for each in listeners):
        raise AssertionError("a creation was not sent to everybody")
    return {
        "prefix_home_bytes": round(prefix_home / managers),
        "prefix_snapshot_ms": round(snapshot_ms, 1),
        "creation_by_prefix_us": spent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--managers", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = asyncio.run(measure(Path(directory), options.topics, options.managers))
    result = {"topics": options.topics, "managers": options.managers, **figures}
    print(json.dumps({**result, "load_average": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
