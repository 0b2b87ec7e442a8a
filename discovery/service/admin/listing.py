"""Listings and counts over all shards: tenants, a tenant's namespaces, a namespace's topics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence

from discovery.domain.page import PageToken, scope_of
from discovery.ports import Directory, Shards
from discovery.service.admin.deadline import Deadline, all_of
from discovery.service.admin.ordered_walk import Entry, OrderedWalk
from discovery.service.counters import DiscoveryCounters
from discovery.wire import check_prefix, page_bounds, parse_name
from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    Overloaded,
    PositionAhead,
    Refused,
    Unavailable,
)
from nextgen.kernel.limits.cluster import LIST_PAGE_BYTES_MAX, PAGE_ITEMS_MAX
from nextgen.kernel.limits.listing import (
    LISTING_STEP_MS_MAX,
    LISTINGS_STREAMED_MAX,
    LISTINGS_STREAMED_TENANT_MAX,
    NAME_IN_PAGE_BYTES_OVERHEAD,
)
from nextgen.kernel.routing.names import Domain, NamespaceName, parse_namespace, parse_tenant
from nextgen.kernel.routing.slots import have_all_slots
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Kind,
)

_LISTED_DOMAINS = frozenset(
    {"", Domain.PERSISTENT.value, Domain.NON_PERSISTENT.value, Domain.TOPIC.value}
)
_RETRY_PAUSE_MS = 100
_STEP_ATTEMPT_MS = 5_000

_COUNTS_MAX = 10
"""Counts of one request, while slots move."""


class ListingService:
    """Lists by pages and as streams. Owned by one event loop."""

    def __init__(self, shards: Shards, directory: Directory, counters: DiscoveryCounters) -> None:
        self._shards = shards
        self._directory = directory
        self._counters = counters
        self._streams: Counter[str] = Counter()
        """Streams by tenant."""

    def __repr__(self) -> str:
        return f"<ListingService streams={self._streams.total()}>"

    async def list_tenants(
        self, request: pb.ListObjectsRequest, timeout_ms: int
    ) -> pb.ListObjectsResponse:
        if request.parent:
            raise InvalidRequest("tenants have no parent")
        return await self._page(KIND_TENANT, request, "", timeout_ms)

    async def list_namespaces(
        self, request: pb.ListObjectsRequest, timeout_ms: int
    ) -> pb.ListObjectsResponse:
        tenant = parse_name(parse_tenant, request.parent)
        return await self._page(KIND_NAMESPACE, request, tenant, timeout_ms)

    async def list_topics(
        self, request: pb.ListObjectsRequest, timeout_ms: int
    ) -> pb.ListObjectsResponse:
        namespace = parse_name(parse_namespace, request.parent).text
        _check_domain(request.domain)
        return await self._page(KIND_TOPIC, request, namespace, timeout_ms)

    async def count_topics(
        self, request: pb.CountTopicsRequest, timeout_ms: int
    ) -> pb.CountTopicsResponse:
        """Count the topics of a namespace: exactly, each shard's as of one position.

        Raises:
            MetadataError: A shard could not count in time.
        """
        self._counters.reads += 1
        namespace = parse_name(parse_namespace, request.parent).text
        _check_domain(request.domain)
        check_prefix(request.prefix)
        listing = shard_pb.ListRequest(
            kind=KIND_TOPIC,
            parent=namespace,
            domain=request.domain,
            prefix=request.prefix,
            count_only=True,
        )
        shard_ids, counts = await self._count(listing, timeout_ms)
        return pb.CountTopicsResponse(
            topics=sum(count.objects for count in counts),
            units=sum(count.units for count in counts),
            positions=[
                pb.ShardPosition(shard_id=shard_id, position=count.position)
                for shard_id, count in zip(shard_ids, counts, strict=True)
            ],
        )

    async def stream_topics(
        self, namespace: NamespaceName, *, domain: str, prefix: str = "", names_only: bool = True
    ) -> AsyncGenerator[Sequence[Entry]]:
        """Yield the topics of a namespace of any size in the order of their names, in batches.

        Waits for shards without a leader. Reads no faster than it is iterated over. Close the
        generator.

        Raises:
            Overloaded: There are too many such streams, of the tenant or in all. Nothing was
                yielded.
            MetadataError: A shard gave no answer in ``LISTING_STEP_MS_MAX``. The yielded topics are
                not all.
        """
        tenant = namespace.tenant
        if self._streams.total() >= LISTINGS_STREAMED_MAX:
            raise Overloaded(f"{self._streams.total()} namespaces are being listed")
        if self._streams[tenant] >= LISTINGS_STREAMED_TENANT_MAX:
            raise Overloaded(f"{self._streams[tenant]} namespaces of {tenant} are being listed")
        self._counters.reads += 1
        self._streams[tenant] += 1
        try:
            listing = shard_pb.ListRequest(
                kind=KIND_TOPIC, parent=namespace.text, domain=domain, prefix=prefix
            )
            listing.names_only = names_only
            walk = self._walk(listing, PAGE_ITEMS_MAX)
            while batch := await _next_batch(walk):
                yield batch
        finally:
            self._streams[tenant] -= 1
            if not self._streams[tenant]:
                del self._streams[tenant]

    # ------------------------------------------------------------------------------------------

    def _shard_ids(self) -> Sequence[int]:
        shard_ids = self._directory.view.shard_ids
        if not shard_ids:
            raise Unavailable("no shard map is known here yet")
        return shard_ids

    def _walk(
        self, listing: shard_pb.ListRequest, batch_items: int, token: PageToken | None = None
    ) -> OrderedWalk:
        begin = token or PageToken()
        return OrderedWalk(
            self._shards,
            self._shard_ids(),
            listing,
            batch_items=batch_items,
            after=begin.after,
            positions=begin.positions,
        )

    async def _page(
        self, kind: Kind, request: pb.ListObjectsRequest, parent: str, timeout_ms: int
    ) -> pb.ListObjectsResponse:
        self._counters.reads += 1
        deadline = Deadline(timeout_ms)
        token, items_max = page_bounds(request)
        scope = scope_of(Kind.Name(kind), parent, request.domain, request.prefix)
        if request.page_token:
            self._check_token(token, scope)
        listing = shard_pb.ListRequest(
            kind=kind,
            parent=parent,
            domain=request.domain,
            prefix=request.prefix,
            names_only=request.names_only,
        )
        walk = self._walk(listing, items_max, token)
        page: list[Entry] = []
        size_bytes = 0
        is_cut = False
        while not is_cut and len(page) < items_max:
            batch = await _next_of_page(walk, deadline)
            if not batch:
                break
            for entry in batch:
                size_bytes += _size_bytes(entry)
                is_cut = len(page) == items_max or (bool(page) and size_bytes > LIST_PAGE_BYTES_MAX)
                if is_cut:
                    break
                page.append(entry)
        has_more = is_cut or not walk.is_done
        response = _page_of(kind, page, is_packed=request.names_only and request.packed_names)
        if has_more:
            response.next_page_token = str(PageToken(page[-1][0], walk.positions, scope))
        return response

    def _check_token(self, token: PageToken, scope: str) -> None:
        """Check that a token is of the listing with this scope, and of shards that exist.

        Raises:
            InvalidRequest: It is not.
        """
        if token.scope != scope:
            raise InvalidRequest(
                "the page token is one of another listing: parent, domain and prefix must be those "
                "of the first page"
            )
        if unknown := token.positions.keys() - set(self._shard_ids()):
            raise InvalidRequest(
                f"the page token names shard {min(unknown)}, which does not exist here: "
                "begin the listing again"
            )

    async def _count(
        self, listing: shard_pb.ListRequest, timeout_ms: int
    ) -> tuple[Sequence[int], list[shard_pb.CountedObjects]]:
        """Count in every shard, once more if a slot moved between two counts."""
        for _ in range(_COUNTS_MAX):
            shard_ids = self._shard_ids()
            answers = await all_of(
                [self._count_in(shard_id, listing, timeout_ms) for shard_id in shard_ids]
            )
            if have_all_slots(
                each.slots_digest if each.HasField("slots_digest") else None for each in answers
            ):
                return shard_ids, [each.counted for each in answers]
            await asyncio.sleep(_RETRY_PAUSE_MS / 1_000)
        raise Unavailable("slots move between shards: count again")

    async def _count_in(
        self, shard_id: int, listing: shard_pb.ListRequest, timeout_ms: int
    ) -> shard_pb.ListResponse:
        response = await self._shards.call(
            shard_id, shard_pb.ShardRequest(list=listing), timeout_ms=timeout_ms
        )
        if not response.list.HasField("counted"):
            raise Unavailable(f"the leader of shard {shard_id} runs a release that cannot count")
        return response.list


async def _next_of_page(walk: OrderedWalk, deadline: Deadline) -> list[Entry]:
    """Return the walk's next batch.

    Raises:
        InvalidRequest: The walk's positions are not of this cluster as it is.
        MetadataError: A shard did not answer in time.
    """
    try:
        return await walk.next_batch(deadline.remaining_ms("before the page was full"))
    except PositionAhead as error:
        raise InvalidRequest(
            "the page token is of another cluster, or of one that was restored since then "
            f"({error}): begin the listing again"
        ) from error


async def _next_batch(walk: OrderedWalk) -> list[Entry]:
    """Return the walk's next batch; retry reads that fail without a leader."""
    deadline = Deadline(LISTING_STEP_MS_MAX)
    while True:
        remaining_ms = deadline.remaining_ms("in the middle of a listing")
        try:
            return await walk.next_batch(min(_STEP_ATTEMPT_MS, remaining_ms))
        except (Refused, InvalidRequest):
            raise
        except MetadataError as error:
            pause_ms = max(_RETRY_PAUSE_MS, error.retry_after_ms)
            if pause_ms >= deadline.remaining_ms(f"in the middle of a listing: {error}"):
                raise
            await asyncio.sleep(pause_ms / 1_000)


def _check_domain(domain: str) -> None:
    if domain not in _LISTED_DOMAINS:
        raise InvalidRequest(
            f"domain {domain[:80]!a} cannot be listed, only persistent, non-persistent or all"
        )


def _size_bytes(entry: Entry) -> int:
    name, _, item = entry
    return len(name.encode()) + NAME_IN_PAGE_BYTES_OVERHEAD if item is None else item.ByteSize()


def _page_of(kind: Kind, page: Sequence[Entry], *, is_packed: bool) -> pb.ListObjectsResponse:
    response = pb.ListObjectsResponse()
    if is_packed:
        response.names.extend(name for name, _, _ in page)
        response.partitions.extend(partitions for _, partitions, _ in page)
        return response
    for name, partitions, item in page:
        if item is not None:
            response.items.append(item)
            continue
        named = response.items.add(kind=kind, name=name)
        if kind == KIND_TOPIC:
            named.topic.name = name
            named.topic.partitions = partitions
    return response
