"""A snapshot of one shard of a live cluster, as of one position: the start of its change stream.

The items are spooled to a file before the first of them is used. So a leader that dies half way
costs a retry and nothing else, and memory stays small for a shard of any size.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.client.discovery.shard_replicas import replicas_of
from nextgen.client.transport.stream_call import WATCH, stream_call
from nextgen.client.wire.errors import from_detail
from nextgen.kernel.errors import InvalidRequest, MetadataError, Unauthenticated, Unavailable
from nextgen.kernel.limits.stream import WATCH_SILENCE_MS_MAX
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest
from protos.nextgen.v1.inventory_pb2 import (
    KIND_ASSIGNMENT,
    KIND_NAMESPACE,
    KIND_SCALABLE_TOPIC,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
)
from protos.nextgen.v1.shard_service_pb2 import (
    WatchAdd,
    WatchOpen,
    WatchShardRequest,
    WatchShardUpdate,
)

KINDS = (KIND_TENANT, KIND_NAMESPACE, KIND_TOPIC, KIND_ASSIGNMENT, KIND_SCALABLE_TOPIC)

CALL_TIMEOUT_MS = 15_000
"""Time-out for a discovery node's list of shards."""

SNAPSHOT_TIMEOUT_MS = 60_000
"""Time for attempts at further replicas; a snapshot that makes progress may take longer."""

BACKOFF_MS = 250

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a shard as of ``position``; the items are in the spool."""

    position: int
    items: int


async def shards_of(targets: Sequence[str]) -> list[int]:
    """Return the shards of the cluster behind these discovery nodes.

    Raises:
        Unavailable: The cluster has no shard map yet.
        MetadataError: No node answers.
    """
    nodes = DiscoveryNodes(targets)
    try:
        cluster = await nodes.call(
            "GetCluster", GetClusterRequest(), ClusterUpdate, timeout_ms=CALL_TIMEOUT_MS
        )
    finally:
        await nodes.close()
    shards = sorted(one.shard_id for one in cluster.shard_map.shards)
    if not shards:
        raise Unavailable("the cluster has no shard map yet")
    return shards


async def spool_snapshot(targets: Sequence[str], shard_id: int, spool: BinaryIO) -> Snapshot:
    """Write a shard's snapshot to ``spool``, from its leader if possible, else another replica.

    Raises:
        MetadataError: No replica sent a whole snapshot within ``SNAPSHOT_TIMEOUT_MS``.
    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + SNAPSHOT_TIMEOUT_MS / 1_000
    nodes = DiscoveryNodes(targets)
    try:
        while True:
            error: MetadataError = Unavailable(f"no replica of shard {shard_id} is known")
            try:
                replicas = await replicas_of(nodes, shard_id)
                for endpoint in replicas.in_order(followers_first=False):
                    try:
                        return await _read(endpoint, shard_id, spool)
                    except MetadataError as failure:
                        error = failure
            except MetadataError as failure:
                error = failure
            if isinstance(error, InvalidRequest | Unauthenticated) or loop.time() >= give_up_at:
                raise error
            await asyncio.sleep(BACKOFF_MS / 1_000)
    finally:
        await nodes.close()


def spooled_items(spool: BinaryIO) -> Iterator[Item]:
    """Yield the items in ``spool``, in the order in which they arrived."""
    spool.seek(0)
    while header := spool.read(_LENGTH.size):
        (length,) = _LENGTH.unpack(header)
        yield Item.FromString(spool.read(length))


async def _read(endpoint: str, shard_id: int, spool: BinaryIO) -> Snapshot:
    spool.seek(0)
    spool.truncate()
    items = 0
    opening = WatchOpen(shard_id=shard_id, subscriber_id=f"rebuild-{uuid.uuid4().hex}")
    async with stream_call(endpoint, WATCH, WatchShardRequest, WatchShardUpdate) as call:
        await call.write(WatchShardRequest(open=opening))
        await call.write(WatchShardRequest(add=WatchAdd(watch_id=1, kinds=KINDS)))
        while True:
            async with timeout(WATCH_SILENCE_MS_MAX / 1_000):
                update = await call.read()
            if not isinstance(update, WatchShardUpdate):
                raise Unavailable(f"{endpoint} ended the watch of shard {shard_id}")
            if update.HasField("error"):
                raise from_detail(update.error)
            for item in update.items:
                packed = item.SerializeToString()
                spool.write(_LENGTH.pack(len(packed)) + packed)
            items += len(update.items)
            if update.snapshot_complete:
                return Snapshot(update.position, items)
