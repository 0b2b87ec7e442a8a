"""Watchers of topic lists over sockets: what bad input gets, and what one who never reads costs."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest

from nextgen.client import Client
from nextgen.kernel.limits.pulsar import PULSAR_WRITE_PAUSE_BYTES
from nextgen.kernel.routing.property_filter import EVERY_TOPIC
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.pulsar.frames import encode_command
from nextgen.pulsar.server import PulsarServer
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.pulsar.topic_lists.settings import TopicListSettings
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Item, Topic
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.integration.discovery.conftest import TIMEOUT_MS, Site, started_node
from tests.support.discovery.namespace_watcher import watch_command
from tests.support.discovery.topic_list_world import (
    NAMESPACE,
    PREFIX,
    SCALABLE_PREFIX,
    LoggedShards,
    Node,
)
from tests.support.pulsar.bad_patterns import CASES, PatternCase

KEEP_ALIVE_MS = 1_000
SILENT_WATCHERS = 20
SOCKET_BYTES = 4_096
TOPICS = 1_500
LONG = "x" * 900


def watch(watcher_id: int, pattern: str, namespace: str = NAMESPACE.text) -> BaseCommand:
    request = pulsar.CommandWatchTopicList(
        watcher_id=watcher_id, namespace=namespace, topics_pattern=pattern
    )
    return BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST, watchTopicList=request)


class Lists:
    """The topic lists of a node, over shards in memory."""

    def __init__(self) -> None:
        self.shards = LoggedShards(2, random.Random(1))
        self.node = Node(self.shards)

    def create(self, local: str, prefix: str = PREFIX) -> str:
        name = prefix + local
        self.shards.of_topic(name).create(name)
        return name


@pytest.fixture
async def lists(site: Site) -> AsyncIterator[Lists]:
    """Lists that the node of ``site`` serves; their streams go on by themselves."""
    lists = Lists()
    site.node.core.topic_watches.lists = lists.node.lists
    namespaces = site.node.core.scalable.namespaces
    assert namespaces is not None
    namespaces.lists = lists.node.lists

    async def stream() -> None:
        while True:
            lists.node.streams.advance()
            await asyncio.sleep(0.001)

    streaming = asyncio.create_task(stream())
    yield lists
    streaming.cancel()
    await asyncio.gather(streaming, return_exceptions=True)
    await lists.node.lists.stop()


@asynccontextmanager
async def silent_client(port: int, watches: Sequence[BaseCommand]) -> AsyncIterator[socket.socket]:
    """Connect a client that has sent ``watches``, and reads nothing of what it is sent."""
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
        await loop.sock_connect(connection, ("127.0.0.1", port))
        connect = pulsar.CommandConnect(client_version="silent", protocol_version=21)
        frames = [encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=connect))]
        frames += map(encode_command, watches)
        await loop.sock_sendall(connection, b"".join(frames))
        yield connection


async def test_a_client_that_never_reads_is_bounded_and_closed_and_disturbs_nobody(
    site: Site, lists: Lists
) -> None:
    """1. One client watches and reads, another watches often and never reads. 2. Thousands of
    topics with long names are created. 3. The first client gets each of them. 4. Of the other one
    little waits here, and the keep-alive closes it."""
    core = site.node.core
    server = PulsarServer(core.pulsar._factory, keep_alive_ms=KEEP_ALIVE_MS)
    port = await server.start("127.0.0.1", 0, "a test")
    seen: list[str] = []
    hashes: list[str] = []
    largest = 0

    def take(command: BaseCommand, _payload: bytes) -> None:
        nonlocal largest
        if command.type == BaseCommand.WATCH_TOPIC_UPDATE:
            largest = max(largest, command.ByteSize())
            seen.extend(command.watchTopicUpdate.new_topics)
            hashes.append(command.watchTopicUpdate.topics_hash)

    reading = await PulsarClientConnection.open(
        "127.0.0.1", port, on_push=take, timeout_ms=TIMEOUT_MS
    )
    watches = [watch(watcher_id, ".*") for watcher_id in range(SILENT_WATCHERS)]
    for each in watches:
        each.watchTopicList.request_id = each.watchTopicList.watcher_id
    async with reading, silent_client(port, watches):
        await reading.request(watch(1, ".*"), timeout_ms=TIMEOUT_MS)
        await site.until(lambda: core.topic_watches.watchers == SILENT_WATCHERS + 1)
        created = []
        waiting_bytes = 0
        for number in range(TOPICS):
            created.append(lists.create(f"{LONG}-{number}"))
            if not number % 20:
                await asyncio.sleep(0)
                waiting_bytes = max(waiting_bytes, unsent_bytes(server))

        await site.until(lambda: len(seen) == TOPICS)
        assert sorted(seen) == sorted(created)
        assert hashes[-1] == topics_hash(created)
        # What waits is below the bound, or one update of each watcher above it. An update of one
        # that had no turn for longer is larger than what the reading client saw.
        assert waiting_bytes <= PULSAR_WRITE_PAUSE_BYTES + 2 * SILENT_WATCHERS * largest
        assert waiting_bytes < SILENT_WATCHERS * TOPICS * len(LONG) / 2

        await site.until(lambda: server.connection_count == 1)
        assert core.topic_watches.watchers == 1
        assert core.topic_watches.permits.bytes_held == 0
        last = lists.create("last")
        await site.until(lambda: seen[-1] == last)
    await server.stop(0)


async def test_namespace_watches_of_a_client_that_never_reads_wait_with_one_update_in_all(
    site: Site, lists: Lists
) -> None:
    core = site.node.core
    for number in range(TOPICS):
        lists.create(f"{LONG}-{number}", SCALABLE_PREFIX)
    watches = [watch_command(each, NAMESPACE.text, EVERY_TOPIC) for each in range(SILENT_WATCHERS)]
    namespaces = core.scalable.namespaces
    assert namespaces is not None
    async with silent_client(site.node.pulsar_port, watches):
        # All have their place, and one of them has sent what the client does not read.
        watching = "topic_list_watchers"
        await site.until(lambda: lists.node.lists.gauges()[watching] == SILENT_WATCHERS)
        await site.until(lambda: unsent_bytes(core.pulsar) > PULSAR_WRITE_PAUSE_BYTES)
        for _ in range(100):
            await asyncio.sleep(0)
        one_update = TOPICS * (len(LONG) + 50)
        assert unsent_bytes(core.pulsar) <= PULSAR_WRITE_PAUSE_BYTES + one_update
        # The system took some of them.
        assert namespaces.updates < SILENT_WATCHERS

    await site.until(lambda: namespaces.watches == 0)
    assert namespaces.permits.bytes_held == 0


def unsent_bytes(server: PulsarServer) -> int:
    """Return what waits for the client that reads least."""
    return max(
        transport.get_write_buffer_size()
        for connection in server.connections()
        if (transport := connection._transport) is not None
    )


async def test_an_id_that_is_used_again_belongs_to_the_later_namespace(
    site: Site, lists: Lists
) -> None:
    seen: list[str] = []

    def take(command: BaseCommand, _payload: bytes) -> None:
        seen.extend(command.watchTopicUpdate.new_topics)

    async with await site.connect(on_push=take) as client:
        await client.request(watch(1, ".*"), timeout_ms=TIMEOUT_MS)
        await client.request(watch(1, ".*", "t/other"), timeout_ms=TIMEOUT_MS)
        await client.request(watch(2, ".*-2"), timeout_ms=TIMEOUT_MS)
        lists.create("a-1")
        created = lists.create("a-2")
        await site.until(lambda: bool(seen))

    assert seen == [created]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_bad_pattern_gets_its_code_and_the_connection_goes_on(
    site: Site, lists: Lists, case: PatternCase
) -> None:
    namespace = "acme/orders"
    request = pulsar.CommandGetTopicsOfNamespace(
        namespace=namespace,
        topics_pattern=case.pattern,
        mode=pulsar.CommandGetTopicsOfNamespace.ALL,
    )
    listing = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request)
    async with await site.connect() as client:
        watched = await client.request(watch(1, case.pattern, namespace), timeout_ms=TIMEOUT_MS)
        listed = await client.request(listing, timeout_ms=TIMEOUT_MS)
        then = await client.request(watch(2, "t/n/.*"), timeout_ms=TIMEOUT_MS)

    assert (code_of(watched), code_of(listed)) == (case.watcher, case.listing)
    assert listed.getTopicsOfNamespaceResponse.filtered is case.filtered
    assert then.type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS


def code_of(answer: BaseCommand) -> int | None:
    return answer.error.error if answer.type == BaseCommand.ERROR else None


OFF = [
    pytest.param(TopicListSettings(evaluates_patterns=False), False, id="evaluation off"),
    pytest.param(TopicListSettings(serves_watchers=False), True, id="watching off"),
]


@pytest.mark.parametrize(("settings", "filtered"), OFF)
async def test_what_is_off_is_not_announced_and_refused_and_listings_go_on(
    site: Site, settings: TopicListSettings, filtered: bool
) -> None:
    for local in ("a-1", "b-1"):
        name = f"persistent://acme/orders/{local}"
        item = Item(kind=KIND_TOPIC, name=name, topic=Topic(name=name))
        site.shard_of(name).items[name] = item
    node = await started_node(site.manager, "discovery-2", topic_lists=settings)
    await site.until(lambda: node.core.link.view.slot_table is not None)
    request = pulsar.CommandGetTopicsOfNamespace(
        namespace="acme/orders", topics_pattern="acme/orders/a-.*"
    )
    listing = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request)
    connection = await PulsarClientConnection.open(
        "127.0.0.1", node.pulsar_port, timeout_ms=TIMEOUT_MS
    )
    async with connection as client:
        watched = await client.request(watch(1, ".*", "acme/orders"), timeout_ms=TIMEOUT_MS)
        listed = await client.request(listing, timeout_ms=TIMEOUT_MS)
    flags = client.server.feature_flags

    assert not flags.HasField("supports_topic_watchers")
    assert not flags.HasField("supports_topic_watcher_reconcile")
    assert code_of(watched) == pulsar.NotAllowedError
    answer = listed.getTopicsOfNamespaceResponse
    assert (len(answer.topics), answer.filtered) == (1 if filtered else 2, filtered)
    async with (
        Client([f"127.0.0.1:{node.grpc_port}"], timeout_ms=TIMEOUT_MS) as program,
        aclosing(program.watch_topic_list("acme/orders/a-.*")) as changes,
    ):
        first = await anext(changes)
    assert (first.created, first.is_polled) == (("persistent://acme/orders/a-1",), True)
    await node.stop()
