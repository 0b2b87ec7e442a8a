"""Names of the topics of one namespace, gathered from all shards into one answer.

That is what Pulsar's binary protocol has: one frame. A namespace of any size is streamed over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

from nextgen.client.cluster.view import ClusterView
from nextgen.client.routing.shard_calls import Shards
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX, REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.limits.listing import LIST_PREFIX_BYTES_MAX, LIST_WALK_BYTES_MAX
from nextgen.kernel.limits.pulsar import TOPIC_LIST_BYTES_MAX
from nextgen.kernel.routing.property_filter import PropertyFilter
from nextgen.kernel.routing.slots import have_all_slots
from nextgen.kernel.routing.system_topics import is_system_topic
from nextgen.kernel.routing.unit_names import unit_names
from nextgen.pulsar.topic_lists.listed import matching_topics
from nextgen.pulsar.topic_lists.ports import ListQuestion
from nextgen.tasks.background import join
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC

_NAME_BYTES_OVERHEAD = 3
"""Tag and length of a name in a list: a length below 2**14 takes two bytes."""


_LISTINGS_MAX = 10
"""How often a namespace is listed for one request, while slots move."""

_PAUSE_S = 0.1


class KnownCluster(Protocol):
    """A ``ClusterLink``, as far as a listing needs it."""

    @property
    def view(self) -> ClusterView: ...


class TopicListing:
    """Lists topics at all shards at once."""

    def __init__(self, shards: Shards, cluster: KnownCluster) -> None:
        self._shards = shards
        self._cluster = cluster

    async def topics_of_namespace(self, question: ListQuestion) -> list[str]:
        """See ``TopicDirectory.topics_of_namespace``."""
        prefix = _local_prefix(question)
        if prefix is None:
            return []
        shard_ids = self._cluster.view.shard_ids
        if not shard_ids:
            raise Unavailable("no shard map is known here yet")
        for _ in range(_LISTINGS_MAX):
            digests: list[int | None] = []
            names = await self._names(shard_ids, question, prefix, digests)
            # A page of one shard that had other slots than the page before adds too much.
            if have_all_slots(digests):
                # A name may have gone from one shard to another, for a renamed topic.
                return sorted(set(names))
            await asyncio.sleep(_PAUSE_S)
        raise Unavailable("slots move between shards: list again")

    async def _names(
        self,
        shard_ids: Sequence[int],
        question: ListQuestion,
        prefix: str,
        digests: list[int | None],
    ) -> list[str]:
        """Return the names in all shards; add the digest of the slots that each had."""
        room = _Room(question.namespace.text, len(shard_ids))
        listings = [
            join(self._names_in(shard_id, question, prefix, room, digests))
            for shard_id in shard_ids
        ]
        try:
            return [name for found in await asyncio.gather(*listings) for name in found]
        finally:
            for listing in listings:
                listing.cancel()

    async def _names_in(
        self,
        shard_id: int,
        question: ListQuestion,
        prefix: str,
        room: _Room,
        digests: list[int | None],
    ) -> list[str]:
        """Return the names of the namespace's topics in the shard, without Pulsar's own."""
        names: list[str] = []
        seen: set[int | None] = set()
        listing = pb.ListRequest(
            kind=KIND_TOPIC,
            parent=question.namespace.text,
            limit=PAGE_ITEMS_MAX,
            domain=question.domain,
            prefix=prefix,
            names_only=not question.properties,
            bytes_max=room.page_bytes_max,
            properties=dict(question.properties.pairs),
        )
        while True:
            response = await self._shards.call(
                shard_id, pb.ShardRequest(list=listing), timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS
            )
            has_digest = response.list.HasField("slots_digest")
            seen.add(response.list.slots_digest if has_digest else None)
            topics = _partitions_by_name(response.list, question.properties)
            matching = await matching_topics(question.pattern, topics)
            for name, partitions in matching:
                if not is_system_topic(name):
                    found = unit_names(name, partitions)
                    room.take(found)
                    names += found
            last = _last_name(response.list)
            if not response.list.more_items or not last:
                digests += seen
                return names
            listing.after = last


class _Room:
    """Counts the bytes left in the single frame that a listing has to fit into."""

    def __init__(self, namespace: str, shards: int) -> None:
        self._namespace = namespace
        self.page_bytes_max = max(1, LIST_WALK_BYTES_MAX // shards)
        """Of each shard's pages: those of all are there at a time, however many names match."""
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


def _local_prefix(question: ListQuestion) -> str | None:
    """Return how all local names begin that the pattern can match; None: it can match none."""
    if question.pattern is None:
        return ""
    beginning, prefix = f"{question.namespace.text}/", question.pattern.prefix
    if not prefix.startswith(beginning[: len(prefix)]):
        return None
    local = prefix[len(beginning) :]
    return local if len(local.encode()) <= LIST_PREFIX_BYTES_MAX else None


def _partitions_by_name(page: pb.ListResponse, properties: PropertyFilter) -> list[tuple[str, int]]:
    """Return the topics of a page that have these properties.

    A shard node of an earlier release answers with objects when names are requested.
    """
    if page.items:
        return [
            (item.name, item.topic.partitions)
            for item in page.items
            if properties.matches(item.topic.properties)
        ]
    return list(zip(page.names, page.partitions, strict=True))


def _last_name(page: pb.ListResponse) -> str:
    if page.next_after:
        return page.next_after
    if page.items:
        return page.items[-1].name
    return page.names[-1] if page.names else ""
