"""Pages and counts of one shard: prefixes, bytes, and what is counted while others wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection

from nextgen.kernel.errors import InvalidRequest, Overloaded
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.limits.listing import (
    LIST_PREFIX_BYTES_MAX,
    NAME_COUNTS_MAX,
    NAME_IN_PAGE_BYTES_OVERHEAD,
)
from nextgen.kernel.routing.slots import slots_digest
from nextgen.replication.view.store import ViewStore
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC, Kind
from protos.nextgen.v1.shard_service_pb2 import ListRequest, ListResponse
from shards.domain.shard import SHARD_KEY, Shard, SlotsAdopted
from shards.domain.states import StateKind
from shards.domain.topic import TopicCreated
from shards.inventory import name_counts
from shards.inventory import reader as reader_module
from shards.inventory.name_counts import NameCount, NameCounts
from shards.inventory.reader import InventoryReader
from shards.projections.fold import fold
from shards.projections.reading import Range, topic_ranges
from shards.projections.rows import query_of, read_states
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


# By properties ------------------------------------------------------------------------------

TRICKY = 'x"part'
"""As a key its packed pair ends like that of ``part``."""

WITH_PROPERTIES = {
    "p0": {"part": "0", "b": "ü"},
    "p1": {"part": "1"},
    "p2": {"part": "0"},
    "p3": {TRICKY: "0"},
    "p4": {"b": '"part":"0"'},
    "p5": {"part": "0", "b": "ü", "c": "\\"},
}


@pytest.fixture
def filtered(view: ViewStore, reader: InventoryReader) -> InventoryReader:
    topics = [
        TopicCreated(name, name, 0, "ns-1", TIME_MS, tuple(WITH_PROPERTIES[local].items()))
        for domain in ("persistent", "topic")
        for local, name in zip(WITH_PROPERTIES, names(*WITH_PROPERTIES, domain=domain), strict=True)
    ]
    at = view.applied()
    view.apply(
        entries_of([[record_of(topics)]], from_index=at.index + 1, from_position=at.position + 1)
    )
    return reader


async def all_matching(
    reader: InventoryReader, properties: dict[str, str], **fields: object
) -> tuple[list[str], int]:
    """Return the names of all pages, and how many pages there were."""
    found: list[str] = []
    after, pages = "", 0
    while True:
        page = await listed(reader, properties=properties, after=after, **fields)
        assert not page.items
        assert len(page.names) == len(page.partitions)
        found += page.names
        pages += 1
        if not page.more_items:
            return found, pages
        assert page.next_after > after
        after = page.next_after


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
@pytest.mark.parametrize("scanned_max", [1, 4, 1_000])
@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"part": "0"}, ["p0", "p2", "p5"]),
        ({"part": "0", "b": "ü"}, ["p0", "p5"]),
        ({TRICKY: "0"}, ["p3"]),
        ({"c": "\\"}, ["p5"]),
        ({"part": ""}, []),
    ],
)
async def test_pages_by_properties_have_exactly_the_names_of_topics_that_have_them_all(
    filtered, monkeypatch, properties, expected, limit, scanned_max
):
    monkeypatch.setattr(reader_module, "FILTERED_PAGE_TOPICS_MAX", scanned_max)

    found, pages = await all_matching(filtered, properties, limit=limit)

    assert found == [*names(*expected), *names(*expected, domain="topic")]
    assert pages > 1 or scanned_max > len(WITH_PROPERTIES)


async def test_a_page_by_properties_ends_before_bytes_max_and_the_next_goes_on_there(filtered):
    found, pages = await all_matching(filtered, {"part": "0"}, domain="topic", bytes_max=1)

    assert found == names("p0", "p2", "p5", domain="topic")
    assert pages == 3


async def test_filtered_page_topics_max_are_looked_at_for_a_page_and_one_more_is_not(
    filtered, monkeypatch
):
    monkeypatch.setattr(reader_module, "FILTERED_PAGE_TOPICS_MAX", 3)

    page = await listed(filtered, properties={"part": "0"}, domain="topic")

    assert list(page.names) == names("p0", "p2", domain="topic")
    assert page.next_after == names("p2", domain="topic")[0]


@pytest.mark.parametrize(
    "wrong",
    [
        ListRequest(kind=KIND_TENANT),
        ListRequest(kind=KIND_TOPIC, parent=NAMESPACE, count_only=True),
        ListRequest(kind=KIND_TOPIC, parent=NAMESPACE, properties={"a": "x" * 100_000}),
    ],
)
async def test_properties_that_no_page_can_have_are_refused(reader, wrong):
    wrong.min_position = 1
    wrong.properties["part"] = "0"

    with pytest.raises(InvalidRequest, match="properties"):
        await reader.list(wrong)


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


async def test_a_page_and_a_count_say_which_slots_the_shard_has(
    reader: InventoryReader, view: ViewStore
) -> None:
    own = read_states(query_of(view.reader), StateKind.SHARD, (SHARD_KEY,))[SHARD_KEY]
    assert isinstance(own, Shard)

    for wanted in ({}, {"names_only": True}, {"count_only": True}):
        request = ListRequest(kind=KIND_TOPIC, parent=NAMESPACE, **wanted)
        assert (await reader.list(request)).slots_digest == slots_digest(own.ranges)


async def test_a_count_during_which_slots_come_is_made_again(
    reader: InventoryReader, view: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another request has looked at the slots meanwhile: what it saw is not what was counted."""
    count, counts = reader._counts.count, 0

    async def slow(kind: StateKind, ranges: Sequence[Range]) -> NameCount:
        nonlocal counts
        counts += 1
        counted = await count(kind, ranges)
        if counts == 1:
            applied = view.applied()
            adopted = SlotsAdopted(((0, SLOT_COUNT - 1),), 9)
            entry = entries_of([[record_of([adopted])]])[0]
            view.apply(
                [replace(entry, index=applied.index + 1, first_position=applied.position + 1)]
            )
            await reader.list(ListRequest(kind=KIND_TOPIC, parent=NAMESPACE))
        return counted

    monkeypatch.setattr(reader._counts, "count", slow)

    answer = await reader.list(ListRequest(kind=KIND_TOPIC, parent=NAMESPACE, count_only=True))

    assert counts == 2
    assert answer.slots_digest == slots_digest([(0, SLOT_COUNT - 1)])
