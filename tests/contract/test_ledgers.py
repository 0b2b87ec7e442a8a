"""What every ledger store does: in memory, and on disks, the real one and the simulated one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from brokers.adapters.ledger.format.files import DISK
from brokers.adapters.ledger.memory_ledger import MemoryLedgers, MemoryLedgerStore
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.domain.position import BEFORE_ALL, Position, ledger_id_of
from brokers.ports.ledger import (
    Entry,
    Fenced,
    LedgerReader,
    LedgerStore,
    NewEntry,
    StorageFailed,
    TopicLedger,
)
from nextgen.kernel.events.generations import next_generation_epoch
from nextgen.kernel.limits import pulsar as pulsar_limits
from nextgen.tasks.timeouts import timeout
from tests.support.simulated.disk import SimDisk

TOPIC = "0a1b00112233445566778899"
NAME = "persistent://public/default/orders"
SEGMENT_BYTES = 1_000
LARGE = b"x" * 400
"""Two of these fill a segment, with both stores' way of counting."""


class World:
    """Several processes' stores over the same stored bytes, and a clock."""

    def __init__(self, make: Callable[[World], LedgerStore]) -> None:
        self._make = make
        self._stores: list[LedgerStore] = []
        self.now_ms = 1_000

    def process(self) -> LedgerStore:
        store = self._make(self)
        self._stores.append(store)
        return store

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


@pytest.fixture(params=["memory", "disk", "simulated disk"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    shared = MemoryLedgers()

    def memory(world: World) -> LedgerStore:
        return MemoryLedgerStore(shared, segment_bytes=SEGMENT_BYTES, now_ms=lambda: world.now_ms)

    simulated = SimDisk()

    def disk(world: World) -> LedgerStore:
        on_disk = request.param == "disk"
        return DiskLedgerStore(
            tmp_path / "ledgers" if on_disk else Path("/ledgers"),
            broker_id="broker",
            storage=DISK if on_disk else simulated,
            segment_bytes=SEGMENT_BYTES,
            index_bytes=100,
            recent_bytes_max=1_500,
            now_ms=lambda: world.now_ms,
        )

    world = World(memory if request.param == "memory" else disk)
    yield world
    await world.close()


@pytest.fixture
async def ledger(world: World) -> TopicLedger:
    return await world.process().open(TOPIC, "", 1, topic_name=NAME)


def message(
    sequence_id: int, payload: bytes = b"", *, producer: str = "p", count: int = 1
) -> NewEntry:
    return NewEntry(payload or b"%d" % sequence_id, count, producer, sequence_id)


async def append(ledger: TopicLedger, *entries: NewEntry) -> list[Position]:
    return list(await asyncio.gather(*(ledger.append(entry) for entry in entries)))


async def read_all(reader: LedgerReader, *, at_a_time: int = 3) -> list[Entry]:
    found: list[Entry] = []
    after = BEFORE_ALL
    while entries := await reader.read(after, entries_max=at_a_time, bytes_max=10_000):
        found += entries
        after = entries[-1].position
    return found


async def payloads(reader: LedgerReader) -> list[bytes]:
    return [entry.payload for entry in await read_all(reader)]


# Appending and reading ------------------------------------------------------------------------


async def test_an_empty_ledger_says_so(ledger: TopicLedger) -> None:
    assert (ledger.epoch, ledger.is_fenced, ledger.last, ledger.entry_count) == (
        1,
        False,
        BEFORE_ALL,
        0,
    )
    assert ledger.first == Position(-1, 0)
    assert (ledger.byte_count, ledger.last_time_ms) == (0, 0)
    assert list(await ledger.read(BEFORE_ALL, entries_max=10, bytes_max=10)) == []
    assert await ledger.before_time(0) == BEFORE_ALL
    assert (dict(ledger.state), dict(ledger.producers)) == ({}, {})


async def test_what_is_appended_is_read_back_as_it_came(world: World, ledger: TopicLedger) -> None:
    world.now_ms = 5_000

    position = await ledger.append(NewEntry(b"\x00\xffpayload", 7, "p\u00e4", 41))

    assert position == Position(ledger_id_of(1, 0), 0)
    assert await read_all(ledger) == [Entry(position, b"\x00\xffpayload", 7, 5_000, "p\u00e4", 41)]
    assert (ledger.first, ledger.last, ledger.entry_count) == (position, position, 1)
    assert ledger.last_time_ms == 5_000


async def test_an_entry_without_payload_is_an_entry(ledger: TopicLedger) -> None:
    await ledger.append(NewEntry(b"", 0, "", -1))

    assert [(entry.payload, entry.sequence_id) for entry in await read_all(ledger)] == [(b"", -1)]


async def test_futures_are_fulfilled_in_the_order_of_the_calls(ledger: TopicLedger) -> None:
    order: list[int] = []
    futures = [ledger.append(message(number)) for number in range(100)]
    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, number=number: order.append(number))

    positions = await asyncio.gather(*futures)

    assert order == list(range(100))
    assert positions == sorted(positions)


async def test_nothing_is_seen_before_it_is_acknowledged(ledger: TopicLedger) -> None:
    future = ledger.append(message(1))

    assert (ledger.entry_count, ledger.last, dict(ledger.producers)) == (0, BEFORE_ALL, {})
    assert not ledger.read_recent(BEFORE_ALL, entries_max=1, bytes_max=1)
    assert ledger.pending_bytes > 0

    await future

    assert ledger.entry_count == 1
    assert ledger.pending_bytes == 0


async def test_reading_gives_at_least_one_entry_and_keeps_to_its_limits(
    ledger: TopicLedger,
) -> None:
    positions = await append(ledger, *(message(number, b"x" * 10) for number in range(5)))

    async def count(after: Position, entries_max: int, bytes_max: int) -> int:
        return len(await ledger.read(after, entries_max=entries_max, bytes_max=bytes_max))

    assert await count(BEFORE_ALL, 10, 1) == 1
    assert await count(BEFORE_ALL, 10, 29) == 2
    assert await count(BEFORE_ALL, 10, 30) == 3
    assert await count(BEFORE_ALL, 2, 1_000) == 2
    assert await count(positions[3], 10, 1_000) == 1
    assert await count(positions[4], 10, 1_000) == 0


async def test_reading_begins_behind_any_position_written_or_not(ledger: TopicLedger) -> None:
    positions = await append(ledger, *(message(number, LARGE) for number in range(5)))
    first_ledger, last_ledger = positions[0].ledger_id, positions[-1].ledger_id
    assert last_ledger == first_ledger + 2

    async def next_after(after: Position) -> list[Position]:
        return [entry.position for entry in await ledger.read(after, entries_max=1, bytes_max=1)]

    assert await next_after(Position(first_ledger, -1)) == [positions[0]]
    assert await next_after(Position(first_ledger, 700)) == [positions[2]]
    assert await next_after(Position(first_ledger - 1, 5)) == [positions[0]]
    assert await next_after(Position(last_ledger, 0)) == []
    assert await next_after(Position(last_ledger + 9, 0)) == []


async def test_what_is_in_memory_is_read_without_waiting(ledger: TopicLedger) -> None:
    positions = await append(ledger, message(1), message(2), message(3))

    recent = ledger.read_recent(positions[0], entries_max=10, bytes_max=10_000)

    assert recent == await ledger.read(positions[0], entries_max=10, bytes_max=10_000)
    assert [entry.position for entry in recent or ()] == positions[1:]
    assert not ledger.read_recent(positions[2], entries_max=1, bytes_max=1)


async def test_many_segments_are_read_back_in_order(ledger: TopicLedger) -> None:
    positions = await append(ledger, *(message(number, LARGE) for number in range(21)))

    assert len({position.ledger_id for position in positions}) == 11
    assert [entry.position for entry in await read_all(ledger)] == positions
    assert ledger.entry_count == 21
    assert ledger.entries_between(positions[2], positions[17]) == 15
    assert ledger.entries_between(BEFORE_ALL, positions[-1]) == 21
    assert ledger.entries_between(positions[17], positions[2]) == 0
    assert [each.ledger_id for each in ledger.extents] == sorted({at.ledger_id for at in positions})
    assert [each.entries for each in ledger.extents] == [2] * 10 + [1]
    assert sum(each.size_bytes for each in ledger.extents) == ledger.byte_count
    assert ledger.extents_from(positions[4].ledger_id) == ledger.extents[2:]
    assert ledger.extents_from(positions[-1].ledger_id) == ledger.extents[-1:]
    assert ledger.extents_from(positions[-1].ledger_id + 1) == []
    entries = await read_all(ledger)
    assert ledger.extents[0].first_time_ms == entries[0].publish_time_ms
    assert ledger.extents[0].last_time_ms == entries[1].publish_time_ms
    assert ledger.extents[-1].last_time_ms == ledger.last_time_ms


async def test_publish_times_never_go_back(world: World, ledger: TopicLedger) -> None:
    world.now_ms = 5_000
    await ledger.append(message(1))
    world.now_ms = 4_000
    await ledger.append(message(2))
    successor = await world.process().open(TOPIC, "", 2, topic_name=NAME)
    world.now_ms = 3_000
    await successor.append(message(3))
    world.now_ms = 6_000
    await successor.append(message(4))

    times = [entry.publish_time_ms for entry in await read_all(successor)]

    assert times == [5_000, 5_000, 5_000, 6_000]


async def test_a_time_is_found(world: World, ledger: TopicLedger) -> None:
    positions = []
    for number in range(12):
        world.now_ms = 1_000 + 10 * number
        positions.append(await ledger.append(message(number, LARGE)))

    assert await ledger.before_time(0) == BEFORE_ALL
    assert await ledger.before_time(1_000) == BEFORE_ALL
    for number in range(1, 12):
        assert await ledger.before_time(1_000 + 10 * number) == positions[number - 1]
        assert await ledger.before_time(1_000 + 10 * number - 5) == positions[number - 1]
    assert await ledger.before_time(9_999) == positions[-1]


async def test_listeners_hear_of_entries_until_they_leave(ledger: TopicLedger) -> None:
    heard: list[tuple[str, int]] = []
    leave = ledger.on_appended(lambda: heard.append(("first", ledger.entry_count)))
    ledger.on_appended(lambda: heard.append(("second", ledger.entry_count)))

    await ledger.append(message(1))
    leave()
    leave()
    await ledger.append(message(2))
    await ledger.put_state("key", b"value")

    assert heard == [("first", 1), ("second", 1), ("second", 2)]


@pytest.mark.parametrize(
    "entry",
    [
        NewEntry(b"x" * (pulsar_limits.LEDGER_ENTRY_BYTES_MAX + 1), 1, "p", 1),
        NewEntry(b"", -1, "p", 1),
        NewEntry(b"", 2**32, "p", 1),
        NewEntry(b"", 1, "p", -2),
        NewEntry(b"", 1, "p", 2**63),
        NewEntry(b"", 1, "p" * (pulsar_limits.PRODUCER_NAME_BYTES_MAX + 1), 1),
    ],
    ids=["payload", "count below 0", "count", "sequence id below -1", "sequence id", "name"],
)
async def test_what_has_no_room_is_refused(ledger: TopicLedger, entry: NewEntry) -> None:
    with pytest.raises(ValueError, match=r"payload|count|sequence|name"):
        ledger.append(entry)

    await ledger.append(message(1))
    assert ledger.entry_count == 1


async def test_the_largest_entry_is_stored(ledger: TopicLedger) -> None:
    largest = NewEntry(
        b"x" * pulsar_limits.LEDGER_ENTRY_BYTES_MAX,
        2**32 - 1,
        "p" * pulsar_limits.PRODUCER_NAME_BYTES_MAX,
        2**63 - 1,
    )
    position = await ledger.append(largest)

    [entry] = await ledger.read(BEFORE_ALL, entries_max=1, bytes_max=1)

    assert entry == Entry(
        position,
        largest.payload,
        largest.message_count,
        1_000,
        largest.producer_name,
        largest.sequence_id,
    )


# Facts and sequence ids -----------------------------------------------------------------------


async def test_facts_are_shown_at_once_and_kept(world: World, ledger: TopicLedger) -> None:
    first = ledger.put_state("cursor/a", b"1")
    second = ledger.put_state("cursor/b", b"2")
    third = ledger.put_state("cursor/a", b"3")
    fourth = ledger.put_state("cursor/b", None)

    assert dict(ledger.state) == {"cursor/a": b"3"}
    await asyncio.gather(first, second, third, fourth)
    await ledger.put_state("schema/1", b"")

    successor = await world.process().open(TOPIC, "", 2, topic_name=NAME)
    assert dict(successor.state) == {"cursor/a": b"3", "schema/1": b""}


async def test_futures_of_facts_are_fulfilled_in_the_order_of_the_calls(
    ledger: TopicLedger,
) -> None:
    order: list[int] = []
    futures = [ledger.put_state(f"key/{number % 3}", b"%d" % number) for number in range(9)]
    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, number=number: order.append(number))

    await asyncio.gather(*futures)

    assert order == list(range(9))


async def test_a_fact_that_is_not_small_is_refused(ledger: TopicLedger) -> None:
    with pytest.raises(ValueError, match="too long"):
        ledger.put_state("k" * (pulsar_limits.LEDGER_STATE_KEY_BYTES_MAX + 1), b"")
    with pytest.raises(ValueError, match="bytes"):
        ledger.put_state("key", b"x" * (pulsar_limits.LEDGER_STATE_VALUE_BYTES_MAX + 1))

    await ledger.put_state("k" * pulsar_limits.LEDGER_STATE_KEY_BYTES_MAX, b"")


async def test_sequence_ids_are_the_highest_over_segments_and_owners(
    world: World, ledger: TopicLedger
) -> None:
    for number in range(6):
        await ledger.append(message(number, LARGE, producer=f"p{number % 2}"))
    await ledger.append(message(3, producer="p1"))
    assert dict(ledger.producers) == {"p0": 4, "p1": 5}

    second = await world.process().open(TOPIC, "", 2, topic_name=NAME)
    assert dict(second.producers) == {"p0": 4, "p1": 5}
    third = await world.process().open(TOPIC, "", 3, topic_name=NAME)
    await third.append(message(9, producer="p2"))
    fourth = await world.process().open(TOPIC, "", 4, topic_name=NAME)
    assert dict(fourth.producers) == {"p0": 4, "p1": 5, "p2": 9}


async def test_producers_remembered_max_are_known_and_one_more_drops_the_silent_one(
    world: World, ledger: TopicLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulsar_limits, "PRODUCERS_REMEMBERED_MAX", 2)
    await append(ledger, message(1, producer="a"), message(2, producer="b"))
    assert set(ledger.producers) == {"a", "b"}
    await append(ledger, message(3, producer="a"), message(4, producer="c"))

    assert dict(ledger.producers) == {"a": 3, "c": 4}
    successor = await world.process().open(TOPIC, "", 2, topic_name=NAME)
    assert dict(successor.producers) == {"a": 3, "c": 4}


# Owners ---------------------------------------------------------------------------------------


async def test_opening_again_in_the_same_epoch_gives_the_same_ledger(world: World) -> None:
    store = world.process()

    first, second = await asyncio.gather(
        store.open(TOPIC, "", 1, topic_name=NAME), store.open(TOPIC, "", 1, topic_name=NAME)
    )

    assert first is second
    assert await store.open(TOPIC, "", 1, topic_name=NAME) is first


async def test_a_fenced_epoch_is_not_opened_again(world: World) -> None:
    store = world.process()
    ledger = await store.open(TOPIC, "", 1, topic_name=NAME)
    await world.process().open(TOPIC, "", 2, topic_name=NAME)
    with pytest.raises(Fenced):
        await ledger.append(message(1))

    with pytest.raises(Fenced):
        await store.open(TOPIC, "", 1, topic_name=NAME)


async def test_another_process_cannot_have_the_same_epoch(
    world: World, ledger: TopicLedger
) -> None:
    with pytest.raises(Fenced):
        await world.process().open(TOPIC, "", 1, topic_name=NAME)

    await ledger.append(message(1))


async def test_a_lower_epoch_is_refused_and_does_no_harm(world: World) -> None:
    owner = await world.process().open(TOPIC, "", 5, topic_name=NAME)

    with pytest.raises(Fenced):
        await world.process().open(TOPIC, "", 4, topic_name=NAME)

    await owner.append(message(1))
    assert await payloads(owner) == [b"1"]


async def test_who_is_fenced_hears_of_the_highest_epoch_that_was_ever_used(world: World) -> None:
    """The error of a fenced owner names the epoch above which a new one is free."""
    first = await world.process().open(TOPIC, "", 3, topic_name=NAME)
    await first.append(message(1))
    await world.process().open(TOPIC, "", 9, topic_name=NAME)

    for epoch in (3, 5, 9):
        with pytest.raises(Fenced) as caught:
            await world.process().open(TOPIC, "", epoch, topic_name=NAME)
        assert caught.value.used_epoch == 9

    successor = await world.process().open(TOPIC, "", 10, topic_name=NAME)
    assert await payloads(successor) == [b"1"]


async def test_a_released_epoch_counts_as_used(world: World) -> None:
    ledger = await world.process().open(TOPIC, "", 4, topic_name=NAME)
    await ledger.append(message(1))
    await ledger.close(is_over=True)

    with pytest.raises(Fenced) as caught:
        await world.process().open(TOPIC, "", 4, topic_name=NAME)

    assert caught.value.used_epoch == 4


async def test_a_successor_has_everything_and_the_old_owner_acknowledges_nothing(
    world: World, ledger: TopicLedger
) -> None:
    heard: list[bool] = []
    ledger.on_fenced(lambda: heard.append(ledger.is_fenced))
    ledger.on_failed(lambda error: pytest.fail(f"a fence is no failure: {error}"))
    await append(ledger, message(1), message(2))
    await ledger.put_state("cursor/a", b"1")

    successor = await world.process().open(TOPIC, "", 2, topic_name=NAME)

    results = await asyncio.gather(
        ledger.append(message(3)), ledger.put_state("cursor/a", b"2"), return_exceptions=True
    )
    assert [type(result) for result in results] == [Fenced, Fenced]
    assert (ledger.is_fenced, heard) == (True, [True])
    with pytest.raises(Fenced):
        await ledger.append(message(4))
    assert await payloads(successor) == [b"1", b"2"]
    assert dict(successor.state) == {"cursor/a": b"1"}
    position = await successor.append(message(5))
    assert position == Position(ledger_id_of(2, 0), 0)
    assert await payloads(successor) == [b"1", b"2", b"5"]


async def test_an_owner_is_notified_when_its_process_opens_a_later_epoch(world: World) -> None:
    store = world.process()
    ledger = await store.open(TOPIC, "", 1, topic_name=NAME)
    told = asyncio.Event()
    ledger.on_fenced(told.set)

    await store.open(TOPIC, "", 2, topic_name=NAME)

    async with timeout(30):
        await told.wait()
    assert ledger.is_fenced


async def test_epochs_may_be_left_out(world: World) -> None:
    for epoch in (3, 17, 400):
        owner = await world.process().open(TOPIC, "", epoch, topic_name=NAME)
        await owner.append(message(epoch))

    assert await payloads(owner) == [b"3", b"17", b"400"]
    assert [entry.position.ledger_id for entry in await read_all(owner)] == [
        ledger_id_of(epoch, 0) for epoch in (3, 17, 400)
    ]


async def test_a_closed_ledger_has_finished_and_takes_nothing_more(
    world: World, ledger: TopicLedger
) -> None:
    pending = ledger.append(message(1))

    await asyncio.gather(ledger.close(), ledger.close())

    assert pending.done()
    assert pending.result() == Position(ledger_id_of(1, 0), 0)
    with pytest.raises(StorageFailed):
        await ledger.append(message(2))


async def test_a_process_opens_its_epoch_again_after_closing_it(world: World) -> None:
    store = world.process()
    ledger = await store.open(TOPIC, "", 1, topic_name=NAME)
    first = await ledger.append(message(1))
    await ledger.put_state("cursor/a", b"1")
    await ledger.close()

    again = await store.open(TOPIC, "", 1, topic_name=NAME)
    second = await again.append(message(2))

    assert again is not ledger
    assert first < second
    assert await payloads(again) == [b"1", b"2"]
    assert dict(again.state) == {"cursor/a": b"1"}
    assert dict(again.producers) == {"p": 2}
    successor = await world.process().open(TOPIC, "", 2, topic_name=NAME)
    assert await payloads(successor) == [b"1", b"2"]


async def test_units_of_one_topic_are_apart(world: World) -> None:
    store = world.process()
    first = await store.open(TOPIC, "p0", 1, topic_name=NAME)
    second = await store.open(TOPIC, "p1", 1, topic_name=NAME)

    await append(first, message(1))
    await append(second, message(2))

    assert (await payloads(first), await payloads(second)) == ([b"1"], [b"2"])


# Trimming -------------------------------------------------------------------------------------


async def test_whole_segments_are_dropped_and_the_last_never_is(
    world: World, ledger: TopicLedger
) -> None:
    positions = await append(ledger, *(message(number, LARGE) for number in range(7)))
    before = ledger.byte_count

    await ledger.trim(positions[2])

    assert ledger.first == positions[2]
    assert ledger.entry_count == 5
    assert 0 < ledger.byte_count < before
    assert [entry.position for entry in await read_all(ledger)] == positions[2:]
    assert ledger.entries_between(BEFORE_ALL, positions[-1]) == 5
    assert ledger.entries_between(positions[3], positions[-1]) == 3

    await ledger.trim(positions[-1])
    assert (ledger.first, ledger.last) == (positions[6], positions[6])

    successor = await world.process().open(TOPIC, "", 2, topic_name=NAME)
    assert (successor.first, successor.last) == (positions[6], positions[6])
    await successor.append(message(7))
    await successor.trim(positions[-1])
    assert await payloads(successor) == [b"7"]


async def test_trimming_in_front_of_the_first_entry_does_nothing(ledger: TopicLedger) -> None:
    await ledger.trim(Position(99, 99))
    positions = await append(ledger, *(message(number, LARGE) for number in range(5)))

    await ledger.trim(BEFORE_ALL)

    assert ledger.first == positions[0]


async def test_trimming_far_beyond_the_end_keeps_the_last_segment(ledger: TopicLedger) -> None:
    positions = await append(ledger, *(message(number, LARGE) for number in range(5)))

    await ledger.trim(Position(2**62, 0))

    assert (ledger.first, ledger.entry_count) == (positions[4], 1)


async def test_a_fenced_owner_trims_nothing(world: World, ledger: TopicLedger) -> None:
    positions = await append(ledger, *(message(number, LARGE) for number in range(5)))
    successor = await world.process().open(TOPIC, "", 2, topic_name=NAME)

    with pytest.raises(Fenced):
        await ledger.trim(positions[-1])

    assert [entry.position for entry in await read_all(successor)] == positions


# Readers --------------------------------------------------------------------------------------


async def test_there_is_no_reader_of_what_was_never_stored(world: World) -> None:
    assert await world.process().open_reader(TOPIC, "") is None


async def test_a_reader_sees_what_was_acknowledged_and_goes_on(
    world: World, ledger: TopicLedger
) -> None:
    positions = await append(ledger, *(message(number, LARGE) for number in range(3)))
    await ledger.put_state("cursor/a", b"1")

    reader = await world.process().open_reader(TOPIC, "")

    assert reader is not None
    assert [entry.position for entry in await read_all(reader)] == positions
    assert dict(reader.state) == {"cursor/a": b"1"}
    more = await append(ledger, message(3), message(4))
    assert [
        entry.position for entry in await reader.read(positions[-1], entries_max=9, bytes_max=99)
    ] == more
    assert (reader.first, reader.last, reader.entry_count) == (positions[0], more[-1], 5)


async def test_a_reader_goes_on_over_trimming_and_a_change_of_owner(
    world: World, ledger: TopicLedger
) -> None:
    positions = await append(ledger, *(message(number, LARGE) for number in range(6)))
    reader = await world.process().open_reader(TOPIC, "")
    assert reader is not None
    await ledger.trim(positions[3])

    assert await payloads(reader) == [LARGE, LARGE]

    successor = await world.process().open(TOPIC, "", 2, topic_name=NAME)
    await successor.append(message(6))
    await successor.put_state("cursor/a", b"2")
    assert await payloads(reader) == [LARGE, LARGE, b"6"]
    assert reader.entries_between(positions[4], reader.last) == 2
    again = await world.process().open_reader(TOPIC, "")
    assert again is not None
    assert dict(again.state) == {"cursor/a": b"2"}


async def test_a_removed_ledger_is_gone_and_its_owner_fenced(
    world: World, ledger: TopicLedger
) -> None:
    await append(ledger, *(message(number, LARGE) for number in range(5)))
    await ledger.put_state("cursor/sub", b"x")
    other = await world.process().open("another", "", 1, topic_name=NAME)
    await other.append(message(1))
    process = world.process()

    await process.remove(TOPIC, "", 2)

    with pytest.raises((Fenced, StorageFailed)):
        await ledger.append(message(6))
    reader = await process.open_reader(TOPIC, "")
    assert reader is None or (reader.entry_count, dict(reader.state)) == (0, {})
    assert await payloads(other) == [b"1"], "others stay"
    await process.remove(TOPIC, "", 2)
    await process.remove("was-never-there", "p1", 2)


async def test_a_restored_topic_begins_empty_in_a_later_generation(
    world: World, ledger: TopicLedger
) -> None:
    await append(ledger, *(message(number, LARGE) for number in range(5)))
    await ledger.put_state("cursor/sub", b"x")
    process = world.process()
    await process.remove(TOPIC, "", 2)

    restored = next_generation_epoch(2)
    again = await world.process().open(TOPIC, "", restored, topic_name=NAME)

    assert (again.entry_count, dict(again.state)) == (0, {})
    await append(again, message(7))
    await process.remove(TOPIC, "", restored - 1)
    await append(again, message(8))
    assert await payloads(again) == [b"7", b"8"], "a late removal of before takes nothing"
    await process.remove(TOPIC, "", restored)
    with pytest.raises((Fenced, StorageFailed)):
        await append(again, message(9))
