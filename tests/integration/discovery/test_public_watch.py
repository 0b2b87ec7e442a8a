"""Watches of programs through discovery, with real processes that are killed meanwhile."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from nextgen.client import (
    BlockingClient,
    Change,
    ChangeKind,
    Client,
    NewTopic,
    Topic,
    WatchedObjects,
)
from nextgen.client.wire.errors import error_of_rpc, from_detail
from nextgen.kernel.errors import InvalidRequest, MetadataError, Overloaded, PositionAhead
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.discovery_service_pb2 import WatchRequest, WatchUpdate
from tests.support.callers.member_channel import member_channel
from tests.support.processes.local_cluster import (
    MINIMAL,
    ClusterSize,
    LocalCluster,
    running_cluster,
)

pytestmark = pytest.mark.integration

NAMESPACE = "acme/orders"
PREFIX = f"persistent://{NAMESPACE}/"
SETTLED_TIMEOUT_S = 60


class Watcher:
    """Folds a watch of topics and keeps every change, until cancelled."""

    def __init__(self, client: Client, **watch) -> None:
        self.objects: WatchedObjects[Topic] = WatchedObjects()
        self.changes: list[Change[Topic]] = []
        self.snapshots: set[int] = set()
        self.resets = 0
        self._client = client
        self._watch = watch
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with aclosing(self._client.watch_topics(**self._watch)) as changes:
            async for change in changes:
                self.objects.apply(change)
                self.changes.append(change)
                self.resets += change.kind is ChangeKind.RESET
                if change.kind is ChangeKind.SNAPSHOT_COMPLETE:
                    self.snapshots.add(change.shard_id)
                self._news.set()

    async def until(self, condition) -> None:
        async with timeout(SETTLED_TIMEOUT_S):
            while not condition():
                self._news.clear()
                news = asyncio.ensure_future(self._news.wait())
                done, _ = await asyncio.wait(
                    {news, self._task}, return_when=asyncio.FIRST_COMPLETED
                )
                if self._task in done:
                    news.cancel()
                    self._task.result()
                    raise AssertionError("the watch ended")

    @property
    def token(self) -> str:
        return self.changes[-1].token

    def events(self) -> list[tuple[int, int]]:
        """Return shard and position of each event received, in the order of receipt."""
        return [(c.shard_id, c.position) for c in self.changes if c.time_ms]

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class ListWatcher:
    """Applies the changes of a topic list, and checks that nothing comes twice, until cancelled."""

    def __init__(self, client: Client, pattern: str) -> None:
        self.names: set[str] = set()
        self.hash = ""
        self.polled = False
        self._changes = client.watch_topic_list(pattern)
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with aclosing(self._changes) as changes:
            async for change in changes:
                assert not self.names & set(change.created)
                assert self.names >= set(change.deleted)
                self.names = (self.names | set(change.created)) - set(change.deleted)
                self.hash, self.polled = change.hash, change.is_polled

    async def until(self, names: set[str]) -> None:
        async with timeout(SETTLED_TIMEOUT_S):
            while self.names != names:
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def assert_each_once_and_in_order(watcher: Watcher) -> None:
    last: dict[int, int] = {}
    for shard_id, position in watcher.events():
        assert position > last.get(shard_id, 0), f"shard {shard_id} told {position} too late"
        last[shard_id] = position


async def listed(client: Client, namespace: str = NAMESPACE) -> dict[str, Topic]:
    return {topic.name: topic async for topic in client.list_topics(namespace)}


async def load(client: Client, numbers: range, prefix: str = PREFIX) -> None:
    """Create, change and delete topics; every third stays as it was created."""
    for number in numbers:
        name = f"{prefix}t-{number:04}"
        await client.create_topics([name])
        if number % 3:
            await client.set_topic_properties(name, {"number": str(number)})
        if number % 3 == 2:
            await client.delete_topic(name)


def clients(cluster: LocalCluster) -> tuple[Client, Client]:
    endpoints = cluster.plan.discovery_endpoints
    return Client(endpoints, timeout_ms=20_000), Client(endpoints, timeout_ms=20_000)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def minimal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """One cluster for the tests that leave it intact; each has a namespace of its own."""
    async with running_cluster(tmp_path_factory.mktemp("cluster"), MINIMAL) as cluster:
        yield cluster


async def prepared(client: Client) -> None:
    await client.create_tenant("acme")
    await client.create_namespace(NAMESPACE)
    await client.create_namespace("acme/other")


async def own_namespace(client: Client, tenant: str) -> tuple[str, str]:
    """Create a tenant with a namespace; return that, and how names of its topics begin."""
    namespace = f"{tenant}/orders"
    await client.create_tenant(tenant)
    await client.create_namespace(namespace)
    return namespace, f"persistent://{namespace}/"


async def test_a_fold_of_the_watch_equals_the_listing_over_kills_of_leader_and_discovery(tmp_path):
    """1. Watches by prefix and by name begin. 2. The leader of a shard is killed under load.
    3. Each discovery node is killed in turn. 4. Folded, the watches are what is listed, and the
    one by pattern has every matching name once."""
    size = ClusterSize(cluster_managers=1, brokers=1, shards=2)
    async with running_cluster(tmp_path, size) as cluster:
        writing, watching = clients(cluster)
        async with writing, watching:
            await prepared(writing)
            await load(writing, range(6))
            by_prefix = Watcher(watching, prefix=PREFIX)
            named = f"{PREFIX}t-0010"
            by_name = Watcher(watching, names=[named])
            nothing = Watcher(watching, prefix=f"{PREFIX}nothing-begins-so")
            by_pattern = ListWatcher(watching, f"{NAMESPACE}/t-.*[0369]")
            await by_prefix.until(lambda: by_prefix.snapshots == {1, 2})
            # Later its topic would be in its snapshot, and not created any more.
            await by_name.until(lambda: by_name.snapshots == {1, 2})
            assert by_prefix.objects.by_name() == await listed(writing)

            state = await writing.cluster()
            loading = asyncio.create_task(load(writing, range(6, 24)))
            await by_prefix.until(lambda: f"{PREFIX}t-0007" in by_prefix.objects)
            await cluster.kill(state.shards[0].leader_node)
            await loading
            await writing.create_topics(["persistent://acme/other/x"])

            for node in [node for node in state.nodes if node.kind == "discovery"]:
                loading = asyncio.create_task(load(writing, range(24, 30)))
                await cluster.kill(node.node_id)
                await loading
                await writing.delete_topic(f"{PREFIX}t-0024")
                await cluster.start_node(node.node_id)
                await cluster.wait_ready([node.node_id])
                for number in (25, 27, 28):
                    await writing.delete_topic(f"{PREFIX}t-{number:04}")
            await load(writing, range(30, 36))
            expected = await listed(writing)

            await by_prefix.until(lambda: by_prefix.objects.by_name() == expected)
            await by_name.until(lambda: by_name.objects.get(named) == expected.get(named))
            matching = {name for name in expected if name[-1] in "0369"}
            await by_pattern.until(matching)
            assert (by_pattern.hash, by_pattern.polled) == (topics_hash(matching), False)
            for watcher in (by_prefix, by_name, nothing):
                assert_each_once_and_in_order(watcher)
            assert by_prefix.resets == 0
            assert all(c.name.startswith(PREFIX) for c in by_prefix.changes if c.name)
            told = [change.kind for change in by_name.changes if change.name]
            assert told == [ChangeKind.CREATED, ChangeKind.PROPERTIES_SET]
            assert not any(change.name for change in nothing.changes)
            await asyncio.gather(*(w.stop() for w in (by_prefix, by_name, nothing, by_pattern)))


@pytest.mark.asyncio(loop_scope="module")
async def test_a_token_resumes_without_gap_or_duplicate_and_a_bad_one_is_refused(
    minimal: LocalCluster,
) -> None:
    endpoints = minimal.plan.discovery_endpoints
    async with Client(endpoints, timeout_ms=20_000) as client:
        namespace, prefix = await own_namespace(client, "resumed")
        first = Watcher(client, prefix=prefix)
        await first.until(lambda: bool(first.snapshots))
        await load(client, range(4), prefix)
        loaded = await listed(client, namespace)
        await first.until(lambda: first.objects.by_name() == loaded)
        await first.stop()
        gone = f"{prefix}t-0002"
        assert any(c.kind is ChangeKind.DELETED and c.name == gone for c in first.changes)
        await load(client, range(4, 8), prefix)

        second = Watcher(client, prefix=prefix, resume=first.token)
        expected = await listed(client, namespace)
        await second.until(lambda: len(second.events()) >= 8)
        for change in second.changes:
            first.objects.apply(change)
        assert first.objects.by_name() == expected
        assert second.snapshots == set()
        assert first.events()[-1] < second.events()[0]
        assert_each_once_and_in_order(second)
        await second.stop()

        await refused(client, PositionAhead, resume="1:1000000")
        await refused(client, InvalidRequest, resume="9:1")
        await refused(client, InvalidRequest, resume="1-5")
        await refused(client, InvalidRequest, prefix="acme")
        await refused(client, InvalidRequest, names=["a/b"])
        async with timeout(SETTLED_TIMEOUT_S):
            # Discovery hears a little later of a watch that its client has left.
            while (counters := await client.counters())["watches_topics"]:
                await asyncio.sleep(0.05)
        assert counters["watch_events_relayed_topics"] >= 8


async def refused(client: Client, kind: type[Exception], **watch) -> None:
    async with aclosing(client.watch_topics(**watch)) as changes:
        with pytest.raises(kind):
            await anext(changes)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_reader_that_stops_reading_is_ended_by_name_and_resumes(
    minimal: LocalCluster,
) -> None:
    """1. A watcher takes one update and no more. 2. Ten thousand changes of large topics come.
    3. It reads on: what was sent, and then OVERLOADED with the place to resume from."""
    endpoints = minimal.plan.discovery_endpoints
    async with Client(endpoints, timeout_ms=20_000) as client:
        _, prefix = await own_namespace(client, "slow")
        other = Watcher(client, prefix=prefix)
        async with open_watch(endpoints[0], prefix=prefix) as read:
            assert (await read()).reset
            big = {f"key-{number}": "x" * 4_000 for number in range(4)}
            for start in range(0, 1_800, 100):
                names = [f"{prefix}big-{number}" for number in range(start, start + 100)]
                await client.create_topics([NewTopic(name, 0, big) for name in names])
            await other.until(lambda: len(other.objects) == 1_800)
            async with timeout(SETTLED_TIMEOUT_S):
                while not (await client.counters())["watches_ended_as_slow_topics"]:
                    await asyncio.sleep(0.2)

            told, position, reason = await read_to_the_end(read)

        assert isinstance(reason, Overloaded)
        assert f"resume from 1:{position}" in str(reason)
        assert 0 < told < 1_800
        rest = Watcher(client, prefix=prefix, resume=f"1:{position}")
        await rest.until(lambda: len(rest.events()) == 1_800 - told)
        assert_each_once_and_in_order(other)
        assert other.resets == 0
        await asyncio.gather(other.stop(), rest.stop())


async def read_to_the_end(read) -> tuple[int, int, MetadataError]:
    """Return how many events came, the position behind the last update, and why it ended."""
    told = position = 0
    try:
        while True:
            update = await read()
            told += len(update.events)
            position = max([position, *(place.position for place in update.positions)])
    except MetadataError as error:
        return told, position, error


@asynccontextmanager
async def open_watch(endpoint: str, **request) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Open a watch of topics whose updates are read one by one, when the test wants to."""
    async with member_channel(endpoint) as channel:
        watch = channel.unary_stream(
            "/nextgen.v1.DiscoveryService/WatchTopics",
            request_serializer=WatchRequest.SerializeToString,
            response_deserializer=WatchUpdate.FromString,
        )
        call = watch(WatchRequest(**request))

        async def read() -> WatchUpdate:
            async with timeout(SETTLED_TIMEOUT_S):
                try:
                    update = await call.read()
                except grpc.RpcError as error:
                    raise error_of_rpc(error) from error
            assert isinstance(update, WatchUpdate), "the stream ended without a reason"
            if update.HasField("error"):
                raise from_detail(update.error)
            return update

        yield read
        call.cancel()


@pytest.mark.asyncio(loop_scope="module")
async def test_assignments_and_the_shard_map_are_watched_from_a_thread_and_a_terminal(
    minimal: LocalCluster,
) -> None:
    endpoints = minimal.plan.discovery_endpoints
    async with Client(endpoints, timeout_ms=20_000) as client:
        namespace, prefix = await own_namespace(client, "seen")
        name = f"{prefix}one"
        await client.create_topics([name])
        command = [sys.executable, "-m", "nextgen", "watch"]
        target = ["--target", ",".join(endpoints), "--json"]
        process = await asyncio.create_subprocess_exec(
            *command, "assignments", "--prefix", namespace, *target, stdout=subprocess.PIPE
        )
        assert (await next_change(process.stdout))["change"] == "snapshot_complete"

        await a_topic_list_is_watched(client, namespace, target)
        (location,) = await client.lookup([name])
        change = await next_change(process.stdout)
        process.send_signal(signal.SIGINT)

        assert await process.wait() == 0
        assert (change["change"], change["name"]) == ("assigned", name)
        assert change["value"]["broker_id"] == location.broker_id
        assert await asyncio.to_thread(assigned_from_thread, endpoints, name) == [
            (ChangeKind.PRESENT, name, location.broker_id, location.epoch)
        ]


async def a_topic_list_is_watched(client: Client, namespace: str, target: list[str]) -> None:
    prefix = f"persistent://{namespace}/"
    watching = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nextgen", "topics", "watch", f"{namespace}/a-.*"),
        *(*target, "--limit", "2"),
        stdout=subprocess.PIPE,
    )
    assert watching.stdout is not None
    first = json.loads(await watching.stdout.readline())
    await client.create_topics([f"{prefix}b-1", f"{prefix}a-1"])
    second = json.loads(await watching.stdout.readline())
    assert (first["created"], first["hash"]) == ([], "00000000")
    assert second["created"] == [f"{prefix}a-1"]
    assert second["hash"] == topics_hash(second["created"])
    assert await watching.wait() == 0


async def next_change(lines: asyncio.StreamReader) -> dict[str, Any]:
    """Return the next line that says more than how far the watch is."""
    while (change := json.loads(await lines.readline()))["change"] == "progress":
        continue
    return change


def assigned_from_thread(endpoints, name):
    with BlockingClient(endpoints, timeout_ms=20_000) as client:
        state = next(client.watch_shard_map())
        assert [shard.shard_id for shard in state.shards] == [1]
        assert state.shards[0].leader_grpc
        seen = []
        for change in client.watch_assignments(names=[name]):
            if change.kind is ChangeKind.SNAPSHOT_COMPLETE:
                break
            if change.kind is ChangeKind.PROGRESS:
                continue
            seen.append((change.kind, change.name, change.value.broker_id, change.value.epoch))
        return seen
