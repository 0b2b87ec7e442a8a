"""Pages and counts of one shard: prefixes, bytes, and what is counted while others wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection

from nextgen.kernel.errors import InvalidRequest, Overloaded
from nextgen.kernel.limits.listing import (
    LIST_PREFIX_BYTES_MAX,
    NAME_COUNTS_MAX,
    NAME_IN_PAGE_BYTES_OVERHEAD,
)
from nextgen.replication.view.store import ViewStore
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC, Kind
from protos.nextgen.v1.shard_service_pb2 import ListRequest, ListResponse
from shards.domain.states import StateKind
from shards.domain.topic import TopicCreated
from shards.inventory import name_counts
from shards.inventory.name_counts import NameCount, NameCounts
from shards.inventory.reader import InventoryReader
from shards.projections.fold import fold
from shards.projections.reading import topic_ranges
from shards.projections.rows import query_of
from shards.projections.tables import METADATA
from tests.support.logs.memory_log import MemoryLog
from tests.support.shards.events import HISTORY, TIME_MS, entries_of, record_of

NAMESPACE = "acme/orders"
LOCALS = ["a", "ab", "abc", "b", "ü"]
PARTITIONS = {"ab": 3}


def names(*local: str, domain: str = "persistent") -> list[str]:
    return [f"{domain}://{NAMESPACE}/{each}" for each in local]


@pytest.fixture
def view(tmp_path: Path) -> Iterator[ViewStore]:
    store = ViewStore(tmp_path / "view", METADATA, fold)
    topics = [
        TopicCreated(name, name, PARTITIONS.get(local, 0), "ns-1", TIME_MS)
        for domain in ("persistent", "non-persistent")
        for local, name in zip(LOCALS, names(*LOCALS, domain=domain), strict=True)
    ]
    store.apply(entries_of([[record_of([*HISTORY[:1], *HISTORY[22:23], *topics])]]))
    yield store
    store.close()


@pytest.fixture
def reader(view: ViewStore) -> InventoryReader:
    return InventoryReader(1, MemoryLog(view), query_of(view.reader), view.read_transaction)


async def listed(reader: InventoryReader, **fields: object) -> ListResponse:
    request = ListRequest(kind=KIND_TOPIC, parent=NAMESPACE, min_position=1)
    request.MergeFrom(ListRequest(**fields))
    return await reader.list(request)


@pytest.mark.parametrize("names_only", [True, False])
@pytest.mark.parametrize(
    ("prefix", "after", "expected"),
    [
        ("", "", LOCALS),
        ("ab", "", ["ab", "abc"]),
        ("ab", "ab", ["abc"]),
        ("ü", "", ["ü"]),
        ("b", "a", ["b"]),
        ("c", "", []),
    ],
)
async def test_a_page_has_the_names_with_its_prefix(reader, names_only, prefix, after, expected):
    page = await listed(
        reader,
        domain="persistent",
        prefix=prefix,
        after=names(after)[0] if after else "",
        names_only=names_only,
    )

    found = list(page.names) if names_only else [item.name for item in page.items]
    assert found == names(*expected)
    assert not page.more_items


async def test_names_come_with_their_partitions_and_without_anything_else(reader):
    page = await listed(reader, domain="persistent", names_only=True)

    assert list(page.partitions) == [PARTITIONS.get(local, 0) for local in LOCALS]
    assert not page.items


@pytest.mark.parametrize("names_only", [True, False])
@pytest.mark.parametrize("excess", [0, 1])
async def test_a_page_ends_before_bytes_max_but_has_one_name(reader, names_only, excess):
    whole = await listed(reader, domain="persistent", names_only=names_only, limit=2)
    sizes = [len(name) + NAME_IN_PAGE_BYTES_OVERHEAD for name in whole.names] or [
        item.ByteSize() for item in whole.items
    ]

    page = await listed(
        reader, domain="persistent", names_only=names_only, bytes_max=sum(sizes) - excess
    )
    smallest = await listed(reader, domain="persistent", names_only=names_only, bytes_max=1)

    assert len(page.names or page.items) == 2 - excess
    assert len(smallest.names or smallest.items) == 1
    assert page.more_items
    assert smallest.more_items


@pytest.mark.parametrize("kind", [KIND_TENANT, KIND_NAMESPACE, KIND_TOPIC])
async def test_list_prefix_bytes_max_is_accepted_and_one_more_refused(reader, kind: Kind):
    parent = {KIND_TENANT: "", KIND_NAMESPACE: "acme", KIND_TOPIC: NAMESPACE}[kind]
    request = ListRequest(kind=kind, parent=parent, min_position=1)
    request.prefix = "ü" * (LIST_PREFIX_BYTES_MAX // 2)

    assert not (await reader.list(request)).items
    request.prefix += "a"
    with pytest.raises(InvalidRequest, match="prefix"):
        await reader.list(request)


@pytest.mark.parametrize("slice_names", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("domain", "prefix", "topics", "units"),
    [("", "", 10, 14), ("persistent", "", 5, 7), ("", "ab", 4, 8), ("persistent", "x", 0, 0)],
)
async def test_a_count_is_exact_and_names_its_position(
    reader, monkeypatch, slice_names, domain, prefix, topics, units
):
    monkeypatch.setattr(name_counts, "NAMES_COUNTED_PER_SLICE", slice_names)

    counted = (await listed(reader, domain=domain, prefix=prefix, count_only=True)).counted

    assert (counted.objects, counted.units) == (topics, units)
    assert counted.position == reader.position


class HeldReads:
    """Read transactions of a view that begin when ``released`` is set."""

    def __init__(self, view: ViewStore) -> None:
        self._view = view
        self.released = threading.Event()

    @contextmanager
    def __call__(self) -> Iterator[Connection]:
        self.released.wait()
        with self._view.read_transaction() as connection:
            yield connection


async def test_name_counts_max_counts_are_under_way_and_one_more_is_refused(view):
    reads = HeldReads(view)
    counts = NameCounts(reads)
    ranges = topic_ranges(NAMESPACE)
    counting = [
        asyncio.create_task(counts.count(StateKind.TOPIC, ranges)) for _ in range(NAME_COUNTS_MAX)
    ]
    await asyncio.sleep(0)

    with pytest.raises(Overloaded, match=f"{NAME_COUNTS_MAX} counts"):
        await counts.count(StateKind.TOPIC, ranges)
    reads.released.set()

    expected = NameCount(2 * len(LOCALS), 14, view.applied().position)
    assert await asyncio.gather(*counting) == [expected] * NAME_COUNTS_MAX
    assert await counts.count(StateKind.TOPIC, ranges) == expected


async def test_a_count_that_is_given_up_takes_its_place_until_its_thread_ends(view, monkeypatch):
    monkeypatch.setattr(name_counts, "NAME_COUNTS_MAX", 1)
    reads = HeldReads(view)
    counts = NameCounts(reads)
    counting = asyncio.create_task(counts.count(StateKind.TOPIC, topic_ranges(NAMESPACE)))
    await asyncio.sleep(0)
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)

    with pytest.raises(Overloaded):
        await counts.count(StateKind.TOPIC, topic_ranges(NAMESPACE))
    reads.released.set()
    while counts._running:
        await asyncio.sleep(0.001)

    assert (await counts.count(StateKind.TOPIC, topic_ranges(NAMESPACE))).names == 10
