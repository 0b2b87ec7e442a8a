"""Reads the names of a namespace's topics in one shard, page by page, with their positions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from nextgen.client.topic_lists.selection import Selection
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX, REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.routing.names import NamespaceName
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from protos.nextgen.v1.shard_service_pb2 import ListRequest, ShardRequest, ShardResponse


class Shards(Protocol):
    """A ``ShardRouter``. Every method raises ``MetadataError``."""

    async def call(
        self, shard_id: int, request: ShardRequest, *, timeout_ms: int, idempotent: bool = True
    ) -> ShardResponse: ...

    async def call_any(
        self, shard_id: int, request: ShardRequest, *, timeout_ms: int
    ) -> ShardResponse: ...


@dataclass(frozen=True, slots=True)
class NamesPage:
    """Topics that follow one another in a shard, exactly as of ``position``."""

    position: int
    topics: list[tuple[str, int]]
    """Name and number of partitions; 0: not partitioned."""


async def read_names(
    shards: Shards,
    shard_id: int,
    namespace: NamespaceName,
    selection: Selection,
    *,
    page_bytes_max: int,
) -> AsyncIterator[NamesPage]:
    """Yield the topics that may match by their names, and do match otherwise.

    The first page is read at the leader, after a majority has confirmed it; later ones at any
    replica that is not behind it. A page has at most ``page_bytes_max``, or one topic.

    Raises:
        MetadataError: A page could not be read. Those before it stay valid.
    """
    request = ListRequest(
        kind=KIND_TOPIC,
        parent=namespace.text,
        limit=PAGE_ITEMS_MAX,
        domain=selection.domain.value,
        prefix=selection.local_prefix,
        names_only=not selection.properties,
        bytes_max=page_bytes_max,
        properties=dict(selection.properties.pairs),
    )
    while True:
        message = ShardRequest(list=request)
        if request.min_position:
            response = await shards.call_any(
                shard_id, message, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS
            )
        else:
            response = await shards.call(shard_id, message, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS)
            request.min_position = response.position
        page = response.list
        topics = list(zip(page.names, page.partitions, strict=True))
        last = page.next_after or (topics[-1][0] if topics else "")
        if page.items:
            # A shard node of an earlier release answers with all objects whatever is requested.
            topics = [
                (item.name, item.topic.partitions)
                for item in page.items
                if selection.properties.matches(item.topic.properties)
            ]
            last = page.items[-1].name
        if page.more_items and not last:
            raise Unavailable(f"shard {shard_id} has more topics and names none")
        yield NamesPage(response.position, topics)
        if not page.more_items:
            return
        request.after = last
