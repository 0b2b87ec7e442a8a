"""Names of the topics of one namespace, gathered from all shards."""

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
from nextgen.tasks.background import join
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Item

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
        """Return the names of the namespace's topics that the shard has."""
        names: list[str] = []
        listing = pb.ListRequest(
            kind=KIND_TOPIC, parent=namespace, limit=PAGE_ITEMS_MAX, domain=domain
        )
        while True:
            response = await self._shards.call(
                shard_id, pb.ShardRequest(list=listing), timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS
            )
            items = response.list.items
            for item in items:
                found = _unit_names(item)
                room.take(found)
                names += found
            if not response.list.more_items or not items:
                return names
            listing.after = items[-1].name


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
                f"namespace {self._namespace} has more topics than the "
                f"{TOPIC_LIST_BYTES_MAX} bytes of one answer hold",
            )


def _unit_names(item: Item) -> list[str]:
    count = item.topic.partitions
    if not count:
        return [item.name]
    return [f"{item.name}{PARTITION_SUFFIX}{number}" for number in range(count)]
