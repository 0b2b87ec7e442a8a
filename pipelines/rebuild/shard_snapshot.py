"""One shard of a live cluster, whole, as of one position: what its change stream begins with.

The items are spooled to a file before the first of them is used, so that a leader that dies half
way costs a new beginning and nothing else, and memory stays small whatever the shard holds.
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

KINDS = (KIND_TENANT, KIND_NAMESPACE, KIND_TOPIC, KIND_ASSIGNMENT)

CALL_TIMEOUT_MS = 15_000
"""For some discovery node to say which shards there are."""

SNAPSHOT_TIMEOUT_MS = 60_000
"""To begin anew at another replica; a snapshot that goes on may take longer."""

BACKOFF_MS = 250

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a shard had after ``position``; the items are in the spool."""

    position: int
    items: int


async def shards_of(targets: Sequence[str]) -> list[int]:
    """Return the shards of the cluster behind these discovery nodes.

    Raises:
        Unavailable: The cluster knows of none yet.
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
        raise Unavailable("no shard map is known there yet")
    return shards


async def spool_snapshot(targets: Sequence[str], shard_id: int, spool: BinaryIO) -> Snapshot:
    """Write what a shard holds to ``spool``, from some replica, its leader by preference.

    Raises:
        MetadataError: No replica gave one whole in ``SNAPSHOT_TIMEOUT_MS``.
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
    """Yield the items in ``spool``, in the order they came in."""
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
