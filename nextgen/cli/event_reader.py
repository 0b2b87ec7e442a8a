"""Reads the event log of a shard, whichever of its replicas can be reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import grpc

from nextgen.cli.discovery_client import DiscoveryClient
from nextgen.client.channel import close_channel, open_channel
from nextgen.client.errors_wire import error_of_rpc, from_detail
from nextgen.kernel.errors import Indefinite, MetadataError, Refused, Unavailable
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.shard_service_pb2 import ReadEventsRequest
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub

PAUSE_MS = 300
FAILURES_MAX = 6
FAILURES_FOLLOWING_MAX = 100
"""In a row. While following: half a minute without any replica."""


@dataclass(slots=True)
class _Cursor:
    """What is still to be read. ``remaining`` None: no bound."""

    position: int
    remaining: int | None

    @property
    def is_done(self) -> bool:
        return self.remaining is not None and self.remaining <= 0


async def read_events(
    discovery_endpoints: Sequence[str],
    shard_id: int,
    position: int = 1,
    *,
    follow: bool = False,
    types: Sequence[str] = (),
    limit: int = 0,
) -> AsyncIterator[Event]:
    """Yield the events of a shard from ``position`` on, each once and in order.

    A replica that ends on the way is replaced by another. ``limit`` 0: no bound.

    Raises:
        Refused: There is no such shard.
        MetadataError: No replica answers, or the position is not there any more.
    """
    cursor = _Cursor(position, limit or None)
    failures = 0
    while True:
        replicas = await _replicas(discovery_endpoints, shard_id)
        request = ReadEventsRequest(
            shard_id=shard_id,
            from_position=cursor.position,
            follow=follow,
            events_max=cursor.remaining or 0,
            types=list(types),
        )
        try:
            async for event in _read_once(replicas[failures % len(replicas)], request, cursor):
                failures = 0
                yield event
            if not follow or cursor.is_done:
                return
        except MetadataError as error:
            bound = FAILURES_FOLLOWING_MAX if follow else FAILURES_MAX
            if not isinstance(error, Unavailable | Indefinite) or failures >= bound:
                raise
        failures += 1
        await asyncio.sleep(PAUSE_MS / 1000)


async def _read_once(
    endpoint: str, request: ReadEventsRequest, cursor: _Cursor
) -> AsyncIterator[Event]:
    channel = open_channel(endpoint)
    try:
        async for batch in ShardServiceStub(channel).ReadEvents(request):
            if batch.HasField("error"):
                raise from_detail(batch.error)
            for event in batch.events:
                yield event
                cursor.position = event.position + 1
                if cursor.remaining is not None:
                    cursor.remaining -= 1
            cursor.position = max(cursor.position, batch.next_position)
    except grpc.RpcError as error:
        raise error_of_rpc(error) from error
    finally:
        await close_channel(channel)


async def _replicas(discovery_endpoints: Sequence[str], shard_id: int) -> list[str]:
    """Return the shard's replicas, the leader first."""
    async with DiscoveryClient(discovery_endpoints) as client:
        cluster = await client.call("GetCluster", GetClusterRequest())
    leader = [one.grpc for one in cluster.leaders if one.shard_id == shard_id]
    grpc_of = {node.node_id: node.grpc for node in cluster.nodes}
    for placement in cluster.shard_map.shards:
        if placement.shard_id == shard_id:
            others = [grpc_of[node] for node in placement.replicas if node in grpc_of]
            found = list(dict.fromkeys([*leader, *others]))
            if found:
                return found
            raise Unavailable(f"no replica of shard {shard_id} is known")
    known = sorted(placement.shard_id for placement in cluster.shard_map.shards)
    raise Refused("NOT_FOUND", f"there is no shard {shard_id}, known are {known}")
