"""Pages, streams and counts over all shards."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import Any

import pytest

from discovery.service.admin import listing as listing_module
from discovery.service.admin.listing import ListingService
from discovery.service.counters import DiscoveryCounters
from nextgen.kernel.errors import InvalidRequest, NotLeader, Overloaded, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.listing import (
    LIST_PREFIX_BYTES_MAX,
    LISTING_STEP_MS_MAX,
    LISTINGS_STREAMED_MAX,
    LISTINGS_STREAMED_TENANT_MAX,
)
from nextgen.kernel.routing.names import parse_namespace
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.shard_service_pb2 import ShardRequest, ShardResponse
from tests.support.discovery.changing_shards import PARENT, ChangingShards, shards_of, topic
from tests.support.discovery.fake_cluster import StaticLink, full_update
from tests.support.simulated.virtual_time import run_virtual

TIMEOUT_MS = 10_000
NAMES = [topic(f"{number:04}") for number in range(2_500)]


def service_of(shards: ChangingShards) -> ListingService:
    link = StaticLink(full_update({shard_id: f"node-{shard_id}:1" for shard_id in shards.shards}))
    return ListingService(shards, link, DiscoveryCounters())


@pytest.fixture
def shards() -> ChangingShards:
    return shards_of(set(NAMES), 3, random.Random(7))


async def pages_of(service: ListingService, **fields: Any) -> list[list[str]]:
    request = pb.ListObjectsRequest(parent=PARENT, **fields)
    pages: list[list[str]] = []
    while True:
        page = await service.list_topics(request, TIMEOUT_MS)
        pages.append([item.name for item in page.items])
        request.page_token = page.next_page_token
        if not request.page_token:
            return pages


@pytest.mark.parametrize("names_only", [True, False])
async def test_pages_are_full_but_for_the_last_and_have_each_name_once(shards, names_only):
    pages = await pages_of(service_of(shards), page_size=999, names_only=names_only)

    assert [len(page) for page in pages] == [999, 999, 502]
    assert [name for page in pages for name in page] == NAMES


async def test_names_are_packed_if_only_names_are_wanted(shards):
    request = pb.ListObjectsRequest(parent=PARENT, page_size=100, packed_names=True)
    service = service_of(shards)

    whole = await service.list_topics(request, TIMEOUT_MS)
    request.names_only = True
    packed = await service.list_topics(request, TIMEOUT_MS)

    assert ([item.name for item in whole.items], list(whole.names)) == (NAMES[:100], [])
    assert (list(packed.names), list(packed.items)) == (NAMES[:100], [])
    assert list(packed.partitions) == [0] * 100
    assert packed.next_page_token == whole.next_page_token


@pytest.mark.parametrize(("one_less", "pages"), [(0, [100]), (1, [99, 1])])
async def test_list_page_bytes_max_are_one_page_and_one_byte_more_is_two(
    shards, monkeypatch, one_less, pages
):
    service = service_of(shards)
    request = pb.ListObjectsRequest(parent=PARENT, prefix="00")
    whole = await service.list_topics(request, TIMEOUT_MS)
    size_bytes = sum(item.ByteSize() for item in whole.items)
    monkeypatch.setattr(listing_module, "LIST_PAGE_BYTES_MAX", size_bytes - one_less)

    found = await pages_of(service, prefix="00")

    assert [len(page) for page in found] == pages
    assert [name for page in found for name in page] == NAMES[:100]


async def test_pages_with_a_prefix_have_the_names_with_it(shards):
    pages = await pages_of(service_of(shards), page_size=60, prefix="00")

    assert [name for page in pages for name in page] == NAMES[:100]
    assert [len(page) for page in pages] == [60, 40]


async def test_a_last_page_that_is_full_has_no_token(shards):
    assert [
        len(page) for page in await pages_of(service_of(shards), page_size=1_000, prefix="1")
    ] == [1_000]


async def test_later_pages_are_read_at_replicas_behind_the_position_of_the_first(shards):
    service = service_of(shards)
    await pages_of(service, page_size=100, prefix="0")

    first, later = shards.requests[:3], shards.requests[3:]
    assert {request.min_position for request in first} == {0}
    assert {request.min_position for request in later} == {1}


async def test_a_token_of_another_listing_is_refused(shards):
    service = service_of(shards)
    page = await service.list_topics(pb.ListObjectsRequest(parent=PARENT), TIMEOUT_MS)

    for other in ({"prefix": "1"}, {"domain": "persistent"}, {"parent": "acme/bills"}):
        fields: dict[str, Any] = {"parent": PARENT, "page_token": page.next_page_token, **other}
        with pytest.raises(InvalidRequest, match="another listing"):
            await service.list_topics(pb.ListObjectsRequest(**fields), TIMEOUT_MS)


async def test_a_token_of_before_a_restore_or_of_another_cluster_is_refused(shards):
    for shard in shards.shards.values():
        shard.change(created={topic("x")})
    request = pb.ListObjectsRequest(parent=PARENT, page_size=10)
    page = await service_of(shards).list_topics(request, TIMEOUT_MS)
    request.page_token = page.next_page_token
    restored = shards_of(set(NAMES), 3, random.Random(7))
    smaller = shards_of(set(NAMES), 2, random.Random(7))

    with pytest.raises(InvalidRequest, match=r"position 2 is in the future.*begin the listing"):
        await service_of(restored).list_topics(request, TIMEOUT_MS)
    with pytest.raises(InvalidRequest, match=r"names shard 3.*begin the listing again"):
        await service_of(smaller).list_topics(request, TIMEOUT_MS)


async def test_a_token_is_good_for_as_long_as_its_cluster(shards):
    """No state of the past is kept for it: what was created and deleted since then does no harm."""
    request = pb.ListObjectsRequest(parent=PARENT, page_size=1_000)
    page = await service_of(shards).list_topics(request, TIMEOUT_MS)
    for number in range(50):
        change = {topic(f"1{number:03}-new")}
        shards.shards[1].change(created=change)
        shards.shards[1].change(deleted=change)

    request.page_token = page.next_page_token
    following = await service_of(shards).list_topics(request, TIMEOUT_MS)

    names = [item.name for item in following.items if "new" not in item.name]
    assert names == NAMES[1_000 : 1_000 + len(names)]
    assert len(names) >= 999


@pytest.mark.parametrize("excess", [0, 1])
async def test_list_prefix_bytes_max_bytes_may_be_searched_for_and_not_one_more(shards, excess):
    prefix = "x" * (LIST_PREFIX_BYTES_MAX + excess)
    listing = pb.ListObjectsRequest(parent=PARENT, prefix=prefix)
    counting = pb.CountTopicsRequest(parent=PARENT, prefix=prefix)
    service = service_of(shards)

    if excess:
        with pytest.raises(InvalidRequest, match="prefix"):
            await service.list_topics(listing, TIMEOUT_MS)
        with pytest.raises(InvalidRequest, match="prefix"):
            await service.count_topics(counting, TIMEOUT_MS)
    else:
        assert not (await service.list_topics(listing, TIMEOUT_MS)).items
        assert not (await service.count_topics(counting, TIMEOUT_MS)).topics


async def test_a_count_is_the_sum_of_all_shards(shards):
    request = pb.CountTopicsRequest(parent=PARENT, prefix="01")

    count = await service_of(shards).count_topics(request, TIMEOUT_MS)

    assert (count.topics, count.units) == (100, 100)
    assert [(each.shard_id, each.position) for each in count.positions] == [(1, 1), (2, 1), (3, 1)]


async def test_a_shard_that_cannot_count_is_not_counted_as_empty(shards):
    class Older(ChangingShards):
        async def call(self, shard_id: int, request: ShardRequest, **more: Any) -> ShardResponse:
            request.list.count_only = False
            return await super().call(shard_id, request, **more)

    older = Older(shards.shards, random.Random(1))

    with pytest.raises(Unavailable, match="cannot count"):
        await service_of(older).count_topics(pb.CountTopicsRequest(parent=PARENT), TIMEOUT_MS)


async def streamed(service: ListingService) -> list[str]:
    batches = service.stream_topics(parse_namespace(PARENT), domain="persistent")
    return [name async for batch in batches for name, _, _ in batch]


def test_a_stream_has_each_name_once_although_leaders_die(shards):
    shards.failures = 0.4

    assert run_virtual(lambda: streamed(service_of(shards))) == NAMES


def test_a_stream_waits_for_a_leader_for_listing_step_ms_max_and_no_longer(shards):
    shards.failures = 1.0

    async def ended_after_ms() -> float:
        clock = asyncio.get_running_loop().time
        began_at = clock()
        with pytest.raises((Unavailable, NotLeader)):
            await streamed(service_of(shards))
        return (clock() - began_at) * 1_000

    assert LISTING_STEP_MS_MAX * 0.9 <= run_virtual(ended_after_ms) <= LISTING_STEP_MS_MAX


async def test_a_stream_that_is_refused_is_not_repeated(shards):
    def refuse() -> None:
        raise Refused(RejectionCode.NOT_ALLOWED, "no")

    shards.between = refuse
    with pytest.raises(Refused):
        await streamed(service_of(shards))


def streams_of(service: ListingService, tenant: str, count: int) -> list[Any]:
    namespace = parse_namespace(f"{tenant}/orders")
    return [service.stream_topics(namespace, domain="") for _ in range(count)]


async def test_listings_streamed_max_streams_are_open_and_one_more_is_refused(shards):
    service = service_of(shards)
    per_tenant = LISTINGS_STREAMED_TENANT_MAX
    streams = streams_of(service, "acme", per_tenant)
    streams += streams_of(service, "other", LISTINGS_STREAMED_MAX - per_tenant)
    for stream in streams:
        await anext(stream)

    with pytest.raises(Overloaded):
        await anext(*streams_of(service, "third", 1))
    for stream in streams:
        await stream.aclose()

    async with aclosing(service.stream_topics(parse_namespace(PARENT), domain="")) as another:
        assert await anext(another)


async def test_listings_streamed_tenant_max_are_open_and_one_more_is_refused_but_to_others(shards):
    service = service_of(shards)
    streams = streams_of(service, "acme", LISTINGS_STREAMED_TENANT_MAX)
    for stream in streams:
        await anext(stream)

    with pytest.raises(Overloaded):
        await anext(*streams_of(service, "acme", 1))
    others = streams_of(service, "other", 1)
    assert await anext(*others)
    for stream in streams + others:
        await stream.aclose()
    assert repr(service) == "<ListingService streams=0>"
