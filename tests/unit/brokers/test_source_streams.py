"""The stream between two brokers, over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest

from brokers.adapters.broker_service.servicer import BrokerServicer
from brokers.adapters.cluster.source_streams import GrpcSourceStream, endpoint_of
from brokers.adapters.cluster.source_wire import UpdateReader, request_to_proto
from brokers.ports.source_feed import SourceAway
from brokers.ports.source_stream import (
    FeedCredit,
    FollowSource,
    SourceChanged,
    SourceRequest,
    SourceStream,
    SourceUpdate,
)
from brokers.service.feeds.source_feeds import OwnersSourceFeeds
from nextgen.client.cluster.view import ClusterView
from nextgen.client.transport.malformed_requests import MalformedRequests
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.limits import shadow as limits
from nextgen.kernel.routing.names import parse_topic
from nextgen.runtime.servers.grpc_server import new_server
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.nextgen.v1.broker_service_pb2_grpc import (
    BrokerServiceServicer,
    add_BrokerServiceServicer_to_server,
)
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.events_pb2 import BrokerEndpoints, BrokerRecorded
from tests.support.brokers.feed_world import (
    SHADOW,
    SOURCE,
    ShadowEnd,
    list_shadows,
    publish,
    source_at,
)
from tests.support.brokers.world import BrokerWorld

METHOD = "/nextgen.v1.BrokerService/FollowSources"


async def until(condition: Callable[[], Any]) -> None:
    """Return once the condition holds, in a few seconds at most."""
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it has not come about")


class Servers:
    """The gRPC servers of brokers, and the addresses that others know."""

    def __init__(self, world: BrokerWorld) -> None:
        self.world = world
        self.endpoints: dict[str, str] = {}
        self._servers: dict[str, Any] = {}
        self._feeds: list[OwnersSourceFeeds] = []
        self._ends: list[ShadowEnd] = []

    async def start(self, broker_id: str, servicer: BrokerServiceServicer | None = None) -> str:
        broker = self.world.broker(broker_id)
        server = new_server(["nextgen.v1.BrokerService"], interceptors=[MalformedRequests()])
        servicer = servicer or BrokerServicer(
            broker.agent,
            broker.topics,
            broker_id=broker_id,
            capacity_units=1,
            clock=lambda: 0,
            sources=broker.front.sources,
        )
        add_BrokerServiceServicer_to_server(servicer, server.server)
        port = await server.start("127.0.0.1", 0, "test")
        self._servers[broker_id] = server
        self.endpoints[broker_id] = f"127.0.0.1:{port}"
        return self.endpoints[broker_id]

    async def kill(self, broker_id: str) -> None:
        await self._servers.pop(broker_id).stop(0)

    def shadow(self, broker_id: str, source: str = SOURCE, shadow: str = SHADOW) -> ShadowEnd:
        def dial(to: str, _session_id: str) -> SourceStream:
            return GrpcSourceStream(broker_id, partial(self.endpoints.get, to))

        feeds = OwnersSourceFeeds(self.world.directory, dial)
        self._feeds.append(feeds)
        end = ShadowEnd()
        self._ends.append(end)
        end.follow = feeds.follow(parse_topic(source), parse_topic(shadow), end)
        return end

    async def stop(self) -> None:
        for feeds in self._feeds:
            await feeds.close()
        for broker_id in list(self._servers):
            await self.kill(broker_id)
        assert [promise for end in self._ends for promise in end.broken] == []


@pytest.fixture
async def servers(world: BrokerWorld) -> AsyncIterator[Servers]:
    servers = Servers(world)
    yield servers
    await servers.stop()


async def test_a_shadow_is_fed_over_a_connection(world: BrokerWorld, servers: Servers) -> None:
    topic, client = await source_at(world, "a", SHADOW)
    await servers.start("a")
    shadow = servers.shadow("b")
    await until(lambda: shadow.is_fed)

    await publish(client, 0, 5)
    await until(lambda: shadow.entry_count == 5)

    assert list(shadow.extents.values()) == topic.ledger.extents
    assert [entry.sequence_id for entry in shadow.entries] == list(range(5))
    (feed,) = topic.followers.feeds
    assert (feed.broker_id, feed.entries_out) == ("b", 5)
    assert shadow.follow is not None
    shadow.follow.close()
    await until(lambda: not topic.followers)
    await until(lambda: world.broker("a").front.sources.stream_count == 0)


async def test_a_source_whose_broker_dies_is_followed_to_the_next(
    world: BrokerWorld, servers: Servers
) -> None:
    _, client = await source_at(world, "a", SHADOW)
    await servers.start("a")
    shadow = servers.shadow("b")
    await until(lambda: shadow.is_fed)
    await publish(client, 0, 5)
    await until(lambda: shadow.entry_count == 5)

    await servers.kill("a")
    await until(lambda: shadow.aways)
    assert shadow.aways[0][0] is SourceAway.LOST
    world.assign(SOURCE, "c")
    await servers.start("c")
    survivor = world.broker("c").client()
    await survivor.producer(SOURCE, producer_name="q")
    topic = world.broker("c").topics.get(SOURCE)
    assert topic is not None
    list_shadows(topic, SHADOW)
    await until(lambda: shadow.is_fed)
    await publish(survivor, 0, 3)
    await until(lambda: shadow.entry_count == 8)

    assert list(shadow.extents.values()) == topic.ledger.extents


async def test_a_broker_that_is_not_known_is_lost(world: BrokerWorld, servers: Servers) -> None:
    await source_at(world, "a", SHADOW)

    shadow = servers.shadow("b")

    await until(lambda: shadow.aways)
    reason, message = shadow.aways[0]
    assert reason is SourceAway.LOST
    assert "not known" in message


class RawStream:
    """A stream that a test reads and writes itself."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.reader = UpdateReader()

    async def send(self, *requests: SourceRequest, broker_id: str = "") -> None:
        await self.call.write(
            wire.SourceRequests(
                broker_id=broker_id, requests=map(request_to_proto, requests)
            ).SerializeToString()
        )

    async def read(self) -> list[SourceUpdate]:
        message = await self.call.read()
        assert message is not grpc.aio.EOF
        return list(self.reader.updates(wire.SourceUpdates.FromString(message)))


@asynccontextmanager
async def raw_stream(endpoint: str) -> AsyncIterator[RawStream]:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        call = channel.stream_stream(METHOD)()
        yield RawStream(call)
        call.cancel()


async def test_a_slow_broker_gets_positions_alone_and_is_not_waited_for(
    world: BrokerWorld, servers: Servers
) -> None:
    """It reads nothing while twenty times its credit is published."""
    topic, client = await source_at(world, "a", SHADOW)
    endpoint = await servers.start("a")
    credit, size = 100_000, 10_000
    async with raw_stream(endpoint) as stream:
        await stream.send(FeedCredit(credit), FollowSource(1, SOURCE, SHADOW), broker_id="b")
        await until(lambda: topic.followers.feeds)
        for number in range(20 * credit // size):
            await publish(client, number, number + 1, size=size)
            await asyncio.sleep(0)

        updates: list[SourceUpdate] = []
        last = topic.ledger.extents[-1]
        while (
            not updates
            or getattr(updates[-1], "change", None) is None
            or (
                updates[-1].change.extents[-1] != last  # type: ignore[union-attr]
            )
        ):
            updates += await stream.read()

    changes = [update.change for update in updates if isinstance(update, SourceChanged)]
    sent = sum(len(entry.payload) for change in changes for entry in change.entries)
    assert 0 < sent <= credit


@pytest.mark.parametrize(
    "messages",
    [
        [wire.SourceRequests()],
        [wire.SourceRequests(broker_id="b", requests=[wire.SourceRequest()])],
        [wire.SourceRequests(broker_id="b"), wire.SourceRequests(requests=[wire.SourceRequest()])],
        [
            wire.SourceRequests(
                broker_id="b", requests=[request_to_proto(FollowSource(1, "x y/z", SHADOW))]
            )
        ],
        [
            wire.SourceRequests(
                broker_id="b",
                requests=[request_to_proto(FeedCredit(1))]
                * (limits.FEED_REQUESTS_PER_MESSAGE_MAX + 1),
            )
        ],
    ],
)
async def test_nonsense_ends_a_stream_and_no_other(
    world: BrokerWorld, servers: Servers, messages: list[wire.SourceRequests]
) -> None:
    await source_at(world, "a", SHADOW)
    endpoint = await servers.start("a")
    shadow = servers.shadow("b")
    await until(lambda: shadow.is_fed)

    async with raw_stream(endpoint) as stream:
        for message in messages:
            await stream.call.write(message.SerializeToString())
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stream.call.read()

    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert world.broker("a").front.sources.stream_count == 1
    assert shadow.aways == []


async def test_bytes_that_are_no_message_end_a_stream(world: BrokerWorld, servers: Servers) -> None:
    await source_at(world, "a", SHADOW)
    endpoint = await servers.start("a")

    async with raw_stream(endpoint) as stream:
        await stream.call.write(b"\xff\xff\xff")
        with pytest.raises(grpc.aio.AioRpcError):
            await stream.call.read()

    assert world.broker("a").front.sources.stream_count == 0


async def test_a_stream_that_asks_for_nothing_ends_when_its_broker_ends_it(
    world: BrokerWorld, servers: Servers
) -> None:
    await source_at(world, "a", SHADOW)
    endpoint = await servers.start("a")

    async with raw_stream(endpoint) as stream:
        await stream.call.done_writing()
        assert await stream.call.read() is grpc.aio.EOF
    async with raw_stream(endpoint) as stream:
        await stream.send(broker_id="b")
        await until(lambda: world.broker("a").front.sources.stream_count == 1)
        await stream.call.done_writing()
        assert await stream.call.read() is grpc.aio.EOF

    assert world.broker("a").front.sources.stream_count == 0


class Nonsense(BrokerServiceServicer):
    """A broker that answers every stream with the same message, and then ends it."""

    def __init__(self, message: wire.SourceUpdates) -> None:
        self.message = message

    async def FollowSources(self, request_iterator: Any, context: Any) -> None:
        await anext(aiter(request_iterator))
        await context.write(self.message)


@pytest.mark.parametrize(
    "message",
    [
        wire.SourceUpdates(),
        wire.SourceUpdates(updates=[wire.SourceUpdate(feed_id=1)]),
        wire.SourceUpdates(updates=[wire.SourceUpdate(feed_id=9, left=wire.SourceLeft())]),
    ],
    ids=["ends", "nonsense", "unknown number"],
)
async def test_a_broker_that_sends_nonsense_is_lost(
    world: BrokerWorld, servers: Servers, message: wire.SourceUpdates
) -> None:
    await source_at(world, "a", SHADOW)
    await servers.start("a", Nonsense(message))

    shadow = servers.shadow("b")

    await until(lambda: len(shadow.aways) > 1)
    assert {reason for reason, _ in shadow.aways} == {SourceAway.LOST}
    assert shadow.states == []


async def test_a_broker_that_serves_no_clients_has_no_sources(
    world: BrokerWorld, servers: Servers
) -> None:
    broker = world.broker("a")
    endpoint = await servers.start(
        "a",
        BrokerServicer(broker.agent, None, broker_id="a", capacity_units=1, clock=lambda: 0),
    )
    stream = GrpcSourceStream("b", lambda: endpoint)

    with pytest.raises(MetadataError):
        await stream.run(lambda _: None)


async def test_a_broker_of_an_earlier_release_is_lost(world: BrokerWorld, servers: Servers) -> None:
    """It does not know the call, and is asked again until it is replaced."""
    await source_at(world, "a", SHADOW)
    await servers.start("a", BrokerServiceServicer())

    shadow = servers.shadow("b")

    await until(lambda: len(shadow.aways) > 1)
    assert {reason for reason, _ in shadow.aways} == {SourceAway.LOST}


async def test_a_stream_that_cannot_be_opened_says_so() -> None:
    with pytest.raises(Unavailable):
        await GrpcSourceStream("b", lambda: "127.0.0.1:1").run(lambda _: None)
    with pytest.raises(Unavailable):
        await GrpcSourceStream("b", lambda: None).run(lambda _: None)


def test_a_broker_is_reached_in_the_session_that_was_located() -> None:
    view = ClusterView()
    recorded = BrokerRecorded(
        broker_id="a",
        session_id="s",
        epoch=1,
        is_live=True,
        endpoints=BrokerEndpoints(grpc="127.0.0.1:5"),
        revision=1,
    )
    view.apply(ClusterUpdate(brokers=[recorded]))

    assert endpoint_of(view, "a", "s") == "127.0.0.1:5"
    assert endpoint_of(view, "a", "other") is None
    assert endpoint_of(view, "b", "s") is None
    recorded.is_live, recorded.revision = False, 2
    view.apply(ClusterUpdate(brokers=[recorded]))
    assert endpoint_of(view, "a", "s") is None
