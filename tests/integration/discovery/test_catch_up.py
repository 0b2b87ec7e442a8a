"""A shard read for one watcher alone, from a scripted shard node in this process."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import grpc
import pytest

from discovery.adapters.shard_changes.catch_up_stream import CatchUpStreams
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import InvalidRequest, NotLeader, PositionAhead, Unavailable
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from protos.nextgen.v1.shard_service_pb2 import WatchShardRequest, WatchShardUpdate
from tests.integration.discovery.conftest import WAIT_S
from tests.support.discovery.fake_cluster import StaticLink, full_update
from tests.support.discovery.fake_shard_changes import created, topic_item

NAME = "persistent://t/n/x"


class ScriptedShard:
    """Sends each watcher the changes that the test scripted, and keeps the stream open."""

    def __init__(self) -> None:
        self.updates: list[WatchShardUpdate] = []
        self.requests: list[WatchShardRequest] = []
        self.status: grpc.StatusCode | None = None
        self.ended = asyncio.Event()
        self.port = 0
        self._server: GrpcServer | None = None

    async def start(self) -> None:
        self._server = new_server([])
        watch = grpc.stream_stream_rpc_method_handler(
            self._watch,
            request_deserializer=WatchShardRequest.FromString,
            response_serializer=WatchShardUpdate.SerializeToString,
        )
        handlers = grpc.method_handlers_generic_handler("nextgen.v1.ShardService", {"Watch": watch})
        self._server.server.add_generic_rpc_handlers((handlers,))
        self.port = await self._server.start("127.0.0.1", 0, "a test")

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(grace_ms=0)

    async def _watch(self, requests: Any, context: Any) -> None:
        try:
            for _ in range(2):
                self.requests.append(await anext(requests))
            if self.status is not None:
                # Not earlier: who still writes may see that the call is over, but not why.
                await context.abort(self.status, "as the test says")
            for update in self.updates:
                await context.write(update)
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@pytest.fixture
async def shard():
    shard = ScriptedShard()
    await shard.start()
    yield shard
    await shard.stop()


def reading(shard: ScriptedShard, **more):
    link = StaticLink(full_update({1: f"127.0.0.1:{shard.port}"}))
    asked = {"kind": KIND_TOPIC, "prefix": "", "names": [NAME], "from_position": 0} | more
    return aclosing(CatchUpStreams("discovery-1", link).read(1, **asked))


async def taken(shard: ScriptedShard, count: int, **more) -> list[WatchShardUpdate]:
    async with timeout(WAIT_S), reading(shard, **more) as updates:
        return [await anext(updates) for _ in range(count)]


async def test_it_asks_for_one_watch_and_leaves_the_shard_alone_at_the_end(shard):
    shard.updates = [WatchShardUpdate(watch_id=1, items=[topic_item(NAME)])]

    assert await taken(shard, 1, from_position=7) == shard.updates

    opening, add = shard.requests
    assert opening.open.shard_id == 1
    assert opening.open.subscriber_id != "discovery-1", "that one would end the shared stream"
    assert (list(add.add.names), add.add.from_position) == ([NAME], 7)
    async with timeout(WAIT_S):
        await shard.ended.wait()


async def test_updates_of_the_whole_stream_count_once_the_watch_has_caught_up(shard):
    """A position of the whole stream would otherwise skip what is still to be read."""
    early = WatchShardUpdate(position=99)
    own = WatchShardUpdate(watch_id=1, events=[created(5, NAME)], position=6)
    level = WatchShardUpdate(watch_id=1, position=90)
    late = WatchShardUpdate(events=[created(100, NAME)], position=100)
    shard.updates = [early, own, early, level, late]

    assert await taken(shard, 3, from_position=3) == [own, level, late]


@pytest.mark.parametrize(
    ("told", "raised"),
    [
        (PositionAhead(9, 5, is_final=True), PositionAhead),
        (InvalidRequest("no such kind"), InvalidRequest),
        (NotLeader(1, "elsewhere:1"), Unavailable),
    ],
)
async def test_the_reason_of_a_shard_that_ends_the_watch_is_given(shard, told, raised):
    shard.updates = [WatchShardUpdate(watch_id=1, error=to_detail(told))]
    async with reading(shard) as updates:
        with pytest.raises(raised):
            await anext(updates)


async def test_a_shard_node_that_is_gone_is_trouble_that_passes(shard):
    await shard.stop()
    async with reading(shard) as updates:
        with pytest.raises(Unavailable):
            await anext(updates)
    await shard.start()
