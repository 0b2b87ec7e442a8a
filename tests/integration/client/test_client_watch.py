"""Watches of the client library against scripted discovery nodes in this process."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import grpc
import pytest

from nextgen.client import ChangeKind, Client
from nextgen.client.wire.errors import abort, to_detail
from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    Overloaded,
    PositionAhead,
    Unavailable,
)
from nextgen.runtime.servers.grpc_server import new_server
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.discovery_service_pb2 import ShardPosition, WatchRequest, WatchUpdate
from tests.support.discovery.fake_shard_changes import created, topic_item

PREFIX = "persistent://t/n/"


def update(shard_id=1, position=0, **more) -> WatchUpdate:
    places = [ShardPosition(shard_id=shard_id, position=position)] if position else []
    return WatchUpdate(shard_id=shard_id, positions=places, **more)


class ScriptedDiscovery:
    """Each watch gets the next script: updates, then an error, or nothing more."""

    def __init__(self) -> None:
        self.scripts: list[list[WatchUpdate | MetadataError]] = []
        self.requests: list[WatchRequest] = []
        self.refusal: MetadataError | None = None
        self._server = new_server([])
        self.endpoint = ""

    async def start(self) -> None:
        watch = grpc.unary_stream_rpc_method_handler(
            self._watch,
            request_deserializer=WatchRequest.FromString,
            response_serializer=WatchUpdate.SerializeToString,
        )
        handlers = grpc.method_handlers_generic_handler(
            "nextgen.v1.DiscoveryService", {"WatchTopics": watch}
        )
        self._server.server.add_generic_rpc_handlers((handlers,))
        self.endpoint = f"127.0.0.1:{await self._server.start('127.0.0.1', 0, 'a test')}"

    async def stop(self) -> None:
        await self._server.stop(grace_ms=0)

    async def _watch(self, request: WatchRequest, context: Any) -> None:
        self.requests.append(request)
        if self.refusal is not None:
            await abort(context, self.refusal)
        script = self.scripts.pop(0) if self.scripts else [Unavailable("nothing to say")]
        for step in script:
            if isinstance(step, MetadataError):
                await context.write(WatchUpdate(error=to_detail(step)))
                return
            await context.write(step)
        await asyncio.Event().wait()


@pytest.fixture
async def node():
    node = ScriptedDiscovery()
    await node.start()
    yield node
    await node.stop()


def resumed(request: WatchRequest) -> dict[int, int]:
    return {place.shard_id: place.position for place in getattr(request, "from")}


async def told(client: Client, count: int, **watch) -> list[tuple[str, str, str]]:
    async with timeout(30), aclosing(client.watch_topics(**watch)) as changes:
        seen = [await anext(changes) for _ in range(count)]
    return [(change.kind.value, change.name, change.token) for change in seen]


async def test_an_ended_stream_is_resumed_behind_the_last_change_received(node):
    node.scripts = [
        [
            update(1, reset=True),
            update(1, items=[topic_item("a")]),
            update(1, 20, snapshot_complete=True),
            update(1, 22, events=[created(22, "b")]),
            Overloaded("slow"),
        ],
        [update(1, 24, events=[created(22, "b"), created(24, "c")])],
    ]
    async with Client([node.endpoint]) as client:
        seen = await told(client, 4, prefix=PREFIX)

    assert seen == [
        ("present", "a", ""),
        ("snapshot_complete", "", "1:20"),
        ("created", "b", "1:22"),
        ("created", "c", "1:24"),
    ]
    assert [resumed(request) for request in node.requests] == [{}, {1: 22}]
    assert {request.prefix for request in node.requests} == {PREFIX}


async def test_another_node_is_watched_when_one_is_gone(node):
    second = ScriptedDiscovery()
    await second.start()
    complete = [update(1, 20, snapshot_complete=True)]
    node.scripts, second.scripts = [list(complete)], [list(complete)]
    async with (
        Client([node.endpoint, second.endpoint]) as client,
        timeout(30),
        aclosing(client.watch_topics()) as changes,
    ):
        await anext(changes)
        first, other = (node, second) if node.requests else (second, node)
        other.scripts = [[update(1, 21, events=[created(21, "b")])]]
        await first.stop()
        change = await anext(changes)
    await second.stop()

    assert (change.kind, change.name) == (ChangeKind.CREATED, "b")
    assert [resumed(request) for request in other.requests] == [{1: 20}]


async def test_an_interrupted_snapshot_is_requested_again_and_sent_after_a_reset(node):
    node.scripts = [
        [update(1, reset=True), update(1, items=[topic_item("a")]), Unavailable("it died")],
        [
            update(1, reset=True),
            update(1, items=[topic_item("b")]),
            update(1, 20, snapshot_complete=True),
        ],
    ]
    async with Client([node.endpoint]) as client:
        seen = await told(client, 4)
    assert [(kind, name) for kind, name, _ in seen] == [
        ("present", "a"),
        ("reset", ""),
        ("present", "b"),
        ("snapshot_complete", ""),
    ]


async def test_a_subscriber_that_was_reset_requests_the_snapshot_even_if_it_began_without(node):
    node.scripts = [
        [update(1, 20), update(1, reset=True), Unavailable("it died")],
        [update(1, reset=True), update(1, 30, snapshot_complete=True)],
    ]
    async with Client([node.endpoint]) as client:
        await told(client, 3, without_snapshot=True)
    assert [request.without_snapshot for request in node.requests] == [True, False]


@pytest.mark.parametrize("error", [InvalidRequest("no"), PositionAhead(9, 5, is_final=True)])
async def test_what_can_never_be_served_is_raised_at_once(node, error):
    node.refusal = error
    async with Client([node.endpoint], timeout_ms=60_000) as client:
        with pytest.raises(type(error)):
            await told(client, 1)
    assert len(node.requests) == 1


async def test_a_watch_that_was_never_served_gives_up_in_time(node):
    node.refusal = Unavailable("no shard map")
    async with Client([node.endpoint], timeout_ms=4_000) as client:
        with pytest.raises(Unavailable, match="no shard map"):
            await told(client, 1)
    assert len(node.requests) > 1


async def test_a_malformed_token_reaches_no_node(node):
    async with Client([node.endpoint]) as client:
        with pytest.raises(InvalidRequest, match="token"):
            await told(client, 1, resume="1:x")
    assert node.requests == []
