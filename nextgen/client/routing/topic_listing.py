"""Names of the topics of one namespace, gathered from all shards into one answer.

That is what Pulsar's binary protocol has: one frame. A namespace of any size is streamed over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from nextgen.client.cluster.view import ClusterView
from nextgen.client.routing.shard_calls import Shards
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX, REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.limits.pulsar import TOPIC_LIST_BYTES_MAX
from nextgen.kernel.routing.names import PARTITION_SUFFIX, NamespaceName
from nextgen.kernel.routing.system_topics import is_system_topic
from nextgen.tasks.background import join
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC

_NAME_BYTES_OVERHEAD = 3
"""Tag and length of a name in a list: a length below 2**14 takes two bytes."""


class KnownCluster(Protocol):
    """A ``ClusterLink``, as far as a listing needs it."""

    @property
    def view(self) -> ClusterView: ...


class TopicListing:
    """Lists topics at all shards at once."""

    def __init__(self, shards: Shards, cluster: KnownCluster) -> None:
        self._shards = shards
        self._cluster = cluster

    async def names(self, namespace: NamespaceName, *, domain: str) -> list[str]:
        """See ``TopicDirectory.topics_of_namespace``."""
        shard_ids = self._cluster.view.shard_ids
        if not shard_ids:
            raise Unavailable("no shard map is known here yet")
        room = _Room(namespace.text)
        listings = [
            join(self._names_in(shard_id, namespace.text, domain, room)) for shard_id in shard_ids
        ]
        try:
            names = [name for found in await asyncio.gather(*listings) for name in found]
        finally:
            for listing in listings:
                listing.cancel()
        return sorted(names)

    async def _names_in(self, shard_id: int, namespace: str, domain: str, room: _Room) -> list[str]:
        """Return the names of the namespace's topics in the shard, without Pulsar's own."""
        names: list[str] = []
        listing = pb.ListRequest(
            kind=KIND_TOPIC,
            parent=namespace,
            limit=PAGE_ITEMS_MAX,
            domain=domain,
            names_only=True,
        )
        while True:
            response = await self._shards.call(
                shard_id, pb.ShardRequest(list=listing), timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS
            )
            topics = _partitions_by_name(response.list)
            for name, partitions in topics:
                if not is_system_topic(name):
                    found = _unit_names(name, partitions)
                    room.take(found)
                    names += found
            if not response.list.more_items or not topics:
                return names
            listing.after = topics[-1][0]


class _Room:
    """Counts the bytes left in the single frame that a listing has to fit into."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._bytes = TOPIC_LIST_BYTES_MAX

    def take(self, names: Iterable[str]) -> None:
        self._bytes -= sum(len(name.encode()) + _NAME_BYTES_OVERHEAD for name in names)
        if self._bytes < 0:
            raise Refused(
                RejectionCode.LIMIT_EXCEEDED,
                f"namespace {self._namespace} has more topics than fit into one answer of "
                f"{TOPIC_LIST_BYTES_MAX} bytes; a listing over HTTP has no limit: "
                f"GET /admin/v2/namespaces/{self._namespace}/topics",
            )


def _partitions_by_name(page: pb.ListResponse) -> list[tuple[str, int]]:
    """Return the topics of a page. A shard node of an earlier release answers with objects."""
    if page.items:
        return [(item.name, item.topic.partitions) for item in page.items]
    return list(zip(page.names, page.partitions, strict=True))


def _unit_names(name: str, partitions: int) -> list[str]:
    if not partitions:
        return [name]
    return [f"{name}{PARTITION_SUFFIX}{number}" for number in range(partitions)]
