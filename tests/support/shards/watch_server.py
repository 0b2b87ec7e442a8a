"""Replicas whose changes are watched over gRPC, and the link that names their leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from nextgen.client.cluster.view import ClusterView
from nextgen.client.transport.malformed_requests import MalformedRequests
from nextgen.runtime.servers.grpc_server import new_server
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, LeaderReport
from protos.nextgen.v1.events_pb2 import NodeRegistered, ShardMapChanged, ShardPlacement
from protos.nextgen.v1.shard_service_pb2 import WatchShardRequest, WatchShardUpdate
from shards.adapters.watch_stream import WatchStream
from tests.support.shards.watch_world import SHARD, WatchWorld


@dataclass
class _Served:
    """As much of a replica as a stream needs."""

    changes: Any


class WatchServer:
    """Serves one world's ``Watch``."""

    def __init__(self, world: WatchWorld) -> None:
        self.world = world
        self.endpoint = ""
        self._server = new_server([], interceptors=[MalformedRequests()])
        handler = grpc.stream_stream_rpc_method_handler(
            self._watch,
            request_deserializer=WatchShardRequest.FromString,
            response_serializer=WatchShardUpdate.SerializeToString,
        )
        self._server.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("nextgen.v1.ShardService", {"Watch": handler}),)
        )

    async def start(self) -> None:
        self.endpoint = f"127.0.0.1:{await self._server.start('127.0.0.1', 0, 'a test')}"

    async def stop(self) -> None:
        await self._server.stop(grace_ms=0)

    async def _watch(self, requests: Any, context: Any) -> None:
        await WatchStream(self._replica, context).serve(requests)

    def _replica(self, _shard_id: int) -> Any:
        return _Served(self.world.hub)


class FakeLink:
    """A ``WatchLink`` whose leader a test sets."""

    def __init__(self) -> None:
        self.view = ClusterView()
        self._changed = asyncio.Event()
        self._term = 0

    def place(self, *endpoints: str) -> None:
        """Let these be the replicas of the shard; their node ids are their endpoints."""
        self.view.apply(
            ClusterUpdate(
                nodes=[NodeRegistered(node_id=each, grpc=each) for each in endpoints],
                shard_map=ShardMapChanged(
                    version=1,
                    slot_owners=SHARD.to_bytes(2, "big") * 16_384,
                    shards=[ShardPlacement(shard_id=SHARD, replicas=endpoints)],
                ),
            )
        )

    def lead(self, endpoint: str) -> None:
        """Let ``endpoint`` lead the next term."""
        self._term += 1
        leader = LeaderReport(shard_id=SHARD, term=self._term, node_id=endpoint, grpc=endpoint)
        self.view.apply(ClusterUpdate(leaders=[leader]))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_until(
        self, predicate: Callable[[ClusterView], bool], timeout_ms: int | None = None
    ) -> bool:
        try:
            async with timeout(None if timeout_ms is None else timeout_ms / 1000):
                while not predicate(self.view):
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True


async def eventually(check: Callable[[], bool]) -> None:
    """Return once ``check`` holds."""
    async with timeout(60):
        while not check():
            await asyncio.sleep(0.01)
