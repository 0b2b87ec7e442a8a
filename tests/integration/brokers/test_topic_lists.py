"""Watchers of topic lists go from node to node of a real cluster, and resume by hash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nextgen.client import Client, NewTopic
from nextgen.kernel.routing.property_filter import parse_filter
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.support.discovery.namespace_watcher import watch_command
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

pytestmark = pytest.mark.integration

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=2, brokers=2, shards=3)
NAMESPACE = "acme/orders"
PATTERN = f"persistent://{NAMESPACE}/a-.*"
TIMEOUT_MS = 30_000
WAIT_S = 60


def named(*numbers: int) -> set[str]:
    return {f"persistent://{NAMESPACE}/a-{number}" for number in numbers}


class WatchedList:
    """A client's connection to one node, and what it knows of the list."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.hash = ""
        self.answered = 0
        """Names in the answer to WATCH."""
        self._moved = asyncio.Event()

    async def watch(self, address: str, known: str) -> PulsarClientConnection:
        """Connect to a node, and watch there with the hash of what is known."""
        host, _, port = address.rpartition(":")
        connection = await PulsarClientConnection.open(
            host, int(port), on_push=self._take, timeout_ms=TIMEOUT_MS
        )
        request = pulsar.CommandWatchTopicList(
            watcher_id=1, namespace=NAMESPACE, topics_pattern=PATTERN, topics_hash=known
        )
        command = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST, watchTopicList=request)
        answer = await connection.request(command, timeout_ms=TIMEOUT_MS)
        assert answer.type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS, answer
        success = answer.watchTopicListSuccess
        self.answered, self.hash = len(success.topic), success.topics_hash
        if not known or success.topics_hash != known:
            self.names = set(success.topic)
        return connection

    async def until(self, names: set[str]) -> None:
        """Wait until the list is known to have these names, and check its hash."""
        async with timeout(WAIT_S):
            while self.names != names:
                self._moved.clear()
                await self._moved.wait()
        assert self.hash == topics_hash(names)

    def _take(self, command: BaseCommand, _payload: bytes) -> None:
        if command.type != BaseCommand.WATCH_TOPIC_UPDATE:
            return
        update = command.watchTopicUpdate
        assert not self.names & set(update.new_topics)
        assert self.names >= set(update.deleted_topics)
        self.names = (self.names | set(update.new_topics)) - set(update.deleted_topics)
        self.hash = update.topics_hash
        self._moved.set()


def scalable(*numbers: int) -> set[str]:
    return {f"topic://{NAMESPACE}/{number}" for number in numbers}


class WatchedNamespace:
    """A client that watches scalable topics at one node after the other, with the hash it has."""

    def __init__(self) -> None:
        self.names: set[str] | None = None
        self.snapshots = 0
        self._answered = asyncio.Event()
        self._moved = asyncio.Event()

    @asynccontextmanager
    async def at(self, address: str) -> AsyncIterator[None]:
        host, _, port = address.rpartition(":")
        connection = await PulsarClientConnection.open(
            host, int(port), on_push=self._take, timeout_ms=TIMEOUT_MS
        )
        known = None if self.names is None else topics_hash(self.names)
        async with connection:
            assert connection.server.feature_flags.supports_scalable_topics
            assert not connection.server.feature_flags.supports_tc_metadata_discovery
            connection.send_command(watch_command(7, NAMESPACE, parse_filter(["for=sale"]), known))
            # The same list without a hash: once it is answered, the silent one is watched too.
            connection.send_command(watch_command(8, NAMESPACE, parse_filter(["for=sale"])))
            async with timeout(WAIT_S):
                await self._answered.wait()
            self._answered.clear()
            yield

    async def until(self, names: set[str]) -> None:
        async with timeout(WAIT_S):
            while self.names != names:
                self._moved.clear()
                await self._moved.wait()

    def _take(self, command: BaseCommand, _payload: bytes) -> None:
        update = command.watchScalableTopicsUpdate
        assert not update.HasField("error"), update
        if update.watch_id == 8:
            if update.HasField("snapshot"):
                self._answered.set()
            return
        if update.HasField("snapshot"):
            self.snapshots += 1
            self.names = set(update.snapshot.topics)
        else:
            assert self.names is not None
            self.names = (self.names - set(update.diff.removed)) | set(update.diff.added)
        self._moved.set()


class Journey:
    """A watcher that closes its connection and resumes at another node, again and again."""

    def __init__(self) -> None:
        self._known = WatchedList(set())

    @asynccontextmanager
    async def at(self, address: str) -> AsyncIterator[WatchedList]:
        before = self._known
        self._known = WatchedList(before.names)
        async with await self._known.watch(address, before.hash):
            yield self._known


def addresses(cluster: LocalCluster, kind: str) -> list[str]:
    found = [node.pulsar for node in cluster.plan.of_kind(kind)]
    assert all(found)
    return [address for address in found if address]


async def leader_of(client: Client, topic: str) -> str:
    (location,) = await client.lookup([topic])
    state = await client.cluster()
    (leader,) = [each.leader_node for each in state.shards if each.shard_id == location.shard_id]
    return leader


async def test_a_watcher_resumes_by_its_hash_at_any_node_also_behind_a_killed_leader(
    tmp_path: Path,
) -> None:
    """1. A watcher has its list from a discovery node. 2. At the other one, and at a broker, the
    same hash is answered without names. 3. While it is away, topics come and go, and the leader of
    a shard is killed. 4. At each further node it gets the whole list once, and its hash alone at
    the next; changes go on where it is."""
    async with running_cluster(tmp_path, SIZE) as cluster:
        first, other = addresses(cluster, "discovery")
        broker, other_broker = addresses(cluster, "broker")
        async with Client(cluster.plan.discovery_endpoints, timeout_ms=TIMEOUT_MS) as client:
            await client.create_tenant("acme")
            await client.create_namespace(NAMESPACE)
            # Enough names for every shard.
            await client.create_topics(sorted(named(*range(12))))
            journey = Journey()
            async with journey.at(first) as known:
                assert known.answered == 12
                await client.create_topics(sorted(named(12)))
                await known.until(named(*range(13)))
            for address in (other, broker):
                async with journey.at(address) as known:
                    await known.until(named(*range(13)))
                    assert known.answered == 0

            gone, *_ = named(3)
            await cluster.kill(await leader_of(client, gone))
            await client.delete_topic(gone)
            await client.create_topics(sorted(named(13, 14)))
            present = named(*range(15)) - {gone}
            async with journey.at(other_broker) as known:
                await known.until(present)
                assert known.answered == len(present)
                await client.create_topics([gone])
                await known.until(present | {gone})
            for address in (first, broker, other):
                async with journey.at(address) as known:
                    await known.until(present | {gone})


async def test_a_namespace_of_scalable_topics_is_watched_at_any_node_also_behind_a_killed_leader(
    tmp_path: Path,
) -> None:
    """1. Scalable topics in three shards are watched by a property at a discovery node. 2. At a
    broker the same hash is answered with nothing, and the changes go on: topics get the property,
    lose it, come and go. 3. While the watcher is away the leader of a shard is killed. 4. At the
    other nodes it gets the list once, then changes."""
    async with running_cluster(tmp_path, SIZE) as cluster:
        first, other = addresses(cluster, "discovery")
        broker, other_broker = addresses(cluster, "broker")
        async with Client(cluster.plan.discovery_endpoints, timeout_ms=TIMEOUT_MS) as client:
            await client.create_tenant("acme")
            await client.create_namespace(NAMESPACE)
            sold = {"for": "sale", "more": "x"}
            await client.create_topics([NewTopic(n, 0, sold) for n in scalable(*range(6))])
            await client.create_topics([NewTopic(n) for n in scalable(*range(6, 12))])
            watched = WatchedNamespace()
            async with watched.at(first):
                await watched.until(scalable(*range(6)))
            async with watched.at(broker):
                (gone,) = scalable(0)
                await client.delete_topic(gone)
                await watched.until(scalable(*range(1, 6)))
                for name in scalable(6, 7):
                    await client.set_topic_properties(name, {"for": "sale"})
                for name in scalable(1, 2):
                    await client.set_topic_properties(name, {"for": "rent"})
                await watched.until(scalable(*range(3, 8)))
                assert watched.snapshots == 1

            await cluster.kill((await client.cluster()).shards[0].leader_node)
            # In every shard.
            for name in scalable(*range(8, 12)):
                await client.set_topic_properties(name, {"for": "sale"})
            async with watched.at(other_broker):
                await watched.until(scalable(*range(3, 12)))
            async with watched.at(other):
                for name in scalable(*range(8, 12)):
                    await client.set_topic_properties(name, {})
                await watched.until(scalable(*range(3, 8)))
            assert watched.snapshots == 2
