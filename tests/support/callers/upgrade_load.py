"""What clients do during an upgrade besides creates and lookups, and what became of it.

effective   writes policies; afterwards no broker may hold earlier ones
move        moves topics to any other broker
watch       follows the creates of a ``SteadyLoad``: each once, none missed
owners      follows the assignments of the moved topics
producer    a stock client that sends 0, 1, 2, …: each stored once, in order
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pulsar
from pulsar import MessageId

from nextgen.cli.local.cluster import LocalCluster
from nextgen.client import Client
from nextgen.client.brokers.metadata import broker_metadata
from nextgen.client.model import Topic
from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.watch_model import Assignment, ChangeKind, WatchedObjects
from nextgen.client.wire.policies import policies_from_proto
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.governance.policies import Policies
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE
from protos.nextgen.v1.shard_service_pb2 import ObjectName
from tests.support.callers.steady_load import NAMESPACE as STEADY
from tests.support.callers.steady_load import SteadyLoad
from tests.support.callers.stock_client import read_all
from tests.support.callers.stock_load import (
    SEND_TIMEOUT_MS,
    SteadyProducer,
    assert_stored_once_in_order,
)

NAMESPACE = "steady/upgrade"
MOVED = [f"persistent://{NAMESPACE}/moved-{number}" for number in range(8)]
PRODUCED = f"persistent://{NAMESPACE}/produced"
TIMEOUT_MS = 30_000
PAUSE_S = 0.2
PROGRESS_S_MAX = 120
IN_FLIGHT_MAX = 50
SEND_PAUSE_MS = 5
ACKNOWLEDGED_BETWEEN = 20


class UpgradeLoad:
    """The load of one upgrade, ``steady`` included. ``errors`` are failures that nothing excuses.

    Refused moves are counted by their reason: while a broker is away there may be no other one.
    """

    def __init__(self, cluster: LocalCluster, steady: SteadyLoad) -> None:
        self._cluster = cluster
        self._steady = steady
        endpoints = list(cluster.plan.discovery_endpoints)
        self._client = Client(endpoints, timeout_ms=TIMEOUT_MS)
        self._effective = Client(endpoints, timeout_ms=TIMEOUT_MS, effective=True)
        self._channels = {
            node.node_id: open_channel(node.grpc) for node in cluster.plan.of_kind("broker")
        }
        self._restarting = ""
        self._producer: SteadyProducer | None = None
        self.errors: list[str] = []
        self.effective_writes = 0
        self.held = 0
        """Times that a broker was found to hold the policies."""
        self.moved = 0
        self.moves_refused: Counter[str] = Counter()
        self.created: Counter[str] = Counter()
        """How often the watch announced a topic, in a snapshot or as created."""
        self.resets: Counter[int] = Counter()
        """By shard: how often the watch had to begin again, as it had missed changes."""
        self.topics: WatchedObjects[Topic] = WatchedObjects()
        self.owners: WatchedObjects[Assignment] = WatchedObjects()

    def step(self, name: str) -> None:
        """See ``SteadyLoad.step``."""
        self._restarting = name
        self._steady.step(name)

    async def progress(self) -> None:
        """Return when each kind of work was done again, by processes of whatever release."""
        self._restarting = ""
        await self._steady.progress()
        assert self._producer is not None
        await asyncio.to_thread(self._producer.wait_acknowledged, ACKNOWLEDGED_BETWEEN)
        writes, moved, held, seen = self.effective_writes, self.moved, self.held, len(self.created)
        await self._until(
            lambda: (
                self.effective_writes > writes
                and self.moved > moved
                and self.held > held
                and len(self.created) > seen
            ),
            "no progress",
        )

    async def check(self) -> None:
        """Compare the watched objects with the existing ones. Ends the steady load's work."""
        self._steady.stop()
        await self._until(lambda: not self._steady.is_at_work, "the steady load goes on")
        listed = {topic.name async for topic in self._client.list_topics(STEADY)}
        await self._until(lambda: set(self.topics.by_name()) == listed, "the watch differs")
        twice = {name: count for name, count in self.created.items() if count > 1}
        assert twice == {}, "announced twice"
        places = {each.topic: each for each in await self._client.lookup(MOVED, fresh=True)}
        epochs = {name: place.epoch for name, place in places.items()}
        await self._until(
            lambda: {each.name: each.epoch for each in self.owners.by_name().values()} == epochs,
            "the watch of owners differs",
        )

    def summary(self) -> dict[str, Any]:
        assert self._producer is not None
        outcome = self._producer.outcome
        return {
            **self._steady.summary(),
            "effective_writes": self.effective_writes,
            "effective_checks": self.held,
            "moved": self.moved,
            "moves_refused": dict(self.moves_refused),
            "watched": len(self.created),
            "resets": self.resets.total(),
            "sent": outcome.sent,
            "acknowledged": len(outcome.acknowledged),
            "send_gap_ms_max": round(outcome.gap_ms_max),
            "other_errors": len(self.errors),
        }

    # Work -------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        await self._client.create_namespace(NAMESPACE)
        await self._create([*MOVED, PRODUCED])
        places = await self._client.lookup(MOVED)
        assert all(place.is_found for place in places), places

    async def _create(self, names: list[str]) -> None:
        """Create topics in all shards.

        A discovery node that has just started may not have reached a shard. A command that it
        stamped then is refused however often it is repeated, so each attempt is a new one.
        """
        async with timeout(PROGRESS_S_MAX):
            while True:
                try:
                    await self._client.create_topics(names)
                except MetadataError:
                    await asyncio.sleep(PAUSE_S)
                else:
                    return

    async def write_effectively(self) -> None:
        number = self.effective_writes + len(self.errors) + 1
        try:
            await self._effective.set_policies(NAMESPACE, Policies(message_ttl_ms=number))
        except MetadataError as error:
            self.errors.append(f"effective write: {type(error).__name__}: {error}")
            return
        # A process that is being stopped has left its session, and need not know later writes.
        brokers = [node_id for node_id in self._channels if node_id != self._restarting]
        for node_id in brokers:
            await self._check_held(node_id, number)
        self.effective_writes += 1

    async def _check_held(self, node_id: str, number: int) -> None:
        names = [ObjectName(kind=KIND_NAMESPACE, name=NAMESPACE)]
        try:
            (item,) = (await broker_metadata(self._channels[node_id], names)).items
        except MetadataError:
            return
        if item.HasField("namespace") and node_id != self._restarting:
            held = policies_from_proto(item.namespace.policies).message_ttl_ms
            self.held += 1
            if held is None or held < number:
                self.errors.append(f"{node_id} holds {held} after the effective write of {number}")

    async def move(self) -> None:
        topic = MOVED[(self.moved + self.moves_refused.total()) % len(MOVED)]
        try:
            (place,) = await self._client.lookup([topic])
            epochs = {topic: place.epoch}
            (answer,) = await self._client.move_topics({topic: ""}, expected_epochs=epochs)
        except MetadataError as error:
            self.errors.append(f"move: {type(error).__name__}: {error}")
            return
        if answer.is_found:
            self.moved += 1
        else:
            self.moves_refused[answer.rejection_code] += 1

    async def watch_topics(self) -> None:
        prefix = f"persistent://{STEADY}/"
        async with aclosing(self._client.watch_topics(prefix=prefix)) as changes:
            async for change in changes:
                self.topics.apply(change)
                if change.kind in (ChangeKind.PRESENT, ChangeKind.CREATED):
                    self.created[change.name] += 1
                elif change.kind is ChangeKind.RESET:
                    self.resets[change.shard_id] += 1

    async def watch_owners(self) -> None:
        async with aclosing(self._client.watch_assignments(names=MOVED)) as changes:
            async for change in changes:
                self.owners.apply(change)

    def produce(self) -> SteadyProducer:
        """Return a producer of a stock client; ``close`` closes the client."""
        path = str(self._cluster.logs_dir / "pulsar-client.log")
        self._stock = pulsar.Client(
            self._cluster.plan.service_url,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, path),
        )
        self._producer = SteadyProducer(
            self._stock.create_producer(PRODUCED, send_timeout_millis=SEND_TIMEOUT_MS),
            in_flight_max=IN_FLIGHT_MAX,
            pause_ms=SEND_PAUSE_MS,
        )
        return self._producer

    def check_produced(self) -> None:
        assert self._producer is not None
        assert self._producer.outcome.failed == {}
        reader = self._stock.create_reader(PRODUCED, MessageId.earliest)
        stored = [int(message.data()) for message in read_all(reader)]
        assert_stored_once_in_order(stored, self._producer.outcome)

    def close_stock(self) -> None:
        self._stock.close()

    async def close(self) -> None:
        for channel in self._channels.values():
            await close_channel(channel)
        await self._client.close()
        await self._effective.close()

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with timeout(PROGRESS_S_MAX):
                while not condition():
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            raise AssertionError(f"{what}: {self.summary()} {self.errors[:3]}") from None


async def _repeat(stop: asyncio.Event, work: Callable[[], Any]) -> None:
    while not stop.is_set():
        await work()
        await asyncio.sleep(PAUSE_S)


@asynccontextmanager
async def upgrade_load(cluster: LocalCluster, steady: SteadyLoad) -> AsyncIterator[UpgradeLoad]:
    """Run the load until the block ends; then check every acknowledged operation."""
    load = UpgradeLoad(cluster, steady)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(load.close)
        await load.prepare()
        producer = await asyncio.to_thread(load.produce)
        stack.push_async_callback(asyncio.to_thread, load.close_stock)
        stop = asyncio.Event()
        watches = [asyncio.create_task(watch()) for watch in (load.watch_topics, load.watch_owners)]
        for task in watches:
            stack.callback(task.cancel)
        workers = [
            asyncio.create_task(_repeat(stop, work)) for work in (load.write_effectively, load.move)
        ]
        await asyncio.to_thread(producer.__enter__)
        try:
            yield load
        finally:
            stop.set()
            await asyncio.gather(*workers)
            await asyncio.to_thread(producer.__exit__)
        await load.check()
        ended = [task for task in watches if task.done()]
        assert ended == [], "a watch ended"
        await asyncio.to_thread(load.check_produced)
