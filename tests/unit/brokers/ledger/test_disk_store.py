"""What only a store on disk can get into: damage, full disks, files to tidy up, bounds."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from brokers.adapters.ledger.format import measuring
from brokers.adapters.ledger.format.files import DISK
from brokers.adapters.ledger.reading.read_files import Indexes, ReadFiles
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.domain.position import BEFORE_ALL, Position
from brokers.ports.ledger import (
    Entry,
    Fenced,
    LedgerDamaged,
    LedgerReader,
    NewEntry,
    StorageFailed,
    TopicLedger,
)
from nextgen.kernel.limits import pulsar as pulsar_limits

TOPIC = "0a1b00112233445566778899"
NAME = "persistent://public/default/orders"

Start = Callable[..., DiskLedgerStore]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts processes; all share one directory."""
    stores: list[DiskLedgerStore] = []

    def begin(**options: object) -> DiskLedgerStore:
        defaults: dict[str, object] = {"broker_id": "b", "index_bytes": 1_000, "writers": 2}
        stores.append(DiskLedgerStore(tmp_path / "ledgers", **(defaults | options)))
        return stores[-1]

    yield begin
    for store in stores:
        await store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ledgers" / TOPIC[:4] / TOPIC


async def opened(store: DiskLedgerStore, epoch: int, topic: str = TOPIC) -> TopicLedger:
    return await store.open(topic, "", epoch, topic_name=NAME)


async def append(ledger: TopicLedger, *payloads: bytes) -> list[Position]:
    """Store each in a round of its own."""
    return [
        await ledger.append(NewEntry(payload, 1, "p", number))
        for number, payload in enumerate(payloads)
    ]


async def read_all(reader: LedgerReader) -> list[bytes]:
    found: list[Entry] = []
    after = BEFORE_ALL
    while entries := await reader.read(after, entries_max=10, bytes_max=10_000):
        found += entries
        after = entries[-1].position
    return [entry.payload for entry in found]


def damage(path: Path, inside: bytes) -> int:
    """Change a byte of the only place that holds ``inside``; return the place."""
    content = bytearray(path.read_bytes())
    [place] = [match.start() for match in re.finditer(re.escape(inside), bytes(content))]
    content[place] ^= 1
    path.write_bytes(content)
    return place


# Damage ---------------------------------------------------------------------------------------


async def test_damage_inside_a_seal_stops_the_topic_there_and_skips_nothing(
    start: Start, folder: Path
) -> None:
    now_ms = count(1_000).__next__
    await append(await opened(start(now_ms=now_ms), 1), b"first", b"second", b"third")
    successor = await opened(start(), 2)
    last_time_ms = (await successor.read(BEFORE_ALL, entries_max=9, bytes_max=999))[-1]
    damage(folder / "1-0.entries", b"second")

    assert [
        entry.payload for entry in await successor.read(BEFORE_ALL, entries_max=9, bytes_max=999)
    ] == [b"first"]
    after = Position(successor.first.ledger_id, 0)
    for _ in range(2):
        with pytest.raises(LedgerDamaged, match=r"1-0\.entries: no valid record at byte \d+"):
            await successor.read(after, entries_max=9, bytes_max=999)
    with pytest.raises(LedgerDamaged, match=r"1-0\.entries"):
        await successor.before_time(last_time_ms.publish_time_ms)


async def test_damage_in_front_of_the_last_round_is_no_torn_tail(
    start: Start, folder: Path
) -> None:
    await append(await opened(start(), 1), b"first", b"second", b"third")
    damage(folder / "1-0.entries", b"second")

    for epoch in (2, 3):
        with pytest.raises(LedgerDamaged, match=r"1-0\.entries: no valid record at byte \d+"):
            await opened(start(), epoch)
    with pytest.raises(LedgerDamaged):
        await start().open_reader(TOPIC, "")


async def test_the_torn_tail_of_an_owner_that_died_is_cut(start: Start, folder: Path) -> None:
    await append(await opened(start(), 1), b"first", b"second")
    damage(folder / "1-0.entries", b"second")

    successor = await opened(start(), 2)
    await append(successor, b"third")

    assert await read_all(successor) == [b"first", b"third"]
    assert await read_all(await opened(start(), 3)) == [b"first", b"third"]


async def test_a_sealed_file_that_is_gone_is_damage(start: Start, folder: Path) -> None:
    await append(await opened(start(), 1), b"first")
    await opened(start(), 2)
    (folder / "1-0.entries").unlink()

    with pytest.raises(LedgerDamaged, match=r"1-0\.entries: sealed, but missing"):
        await opened(start(), 3)


@pytest.mark.parametrize("name", ["1-0.entries", "seal-1"])
async def test_a_file_without_a_valid_beginning_is_damage(
    start: Start, folder: Path, name: str
) -> None:
    await append(await opened(start(), 1), b"first")
    await opened(start(), 2)
    content = bytearray((folder / name).read_bytes())
    content[20] ^= 1
    (folder / name).write_bytes(content)

    async def use() -> None:
        await read_all(await opened(start(), 3))

    with pytest.raises(LedgerDamaged, match=rf"{re.escape(name)}: no valid \w+ at byte 0"):
        await use()


async def test_damaged_facts_stop_the_topic(start: Start, folder: Path) -> None:
    owner = await opened(start(), 1)
    for value in (b"value one", b"value two", b"value three"):
        await owner.put_state("cursor/a", value)
    damage(folder / "1-0.state", b"value two")

    with pytest.raises(LedgerDamaged, match=r"1-0\.state: no valid record at byte \d+"):
        await opened(start(), 2)


# Indexes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["missing", "cut", "junk", "of another segment"])
async def test_an_index_that_is_missing_or_wrong_is_made_again(
    start: Start, folder: Path, harm: str
) -> None:
    payloads = [b"%05d" % number + b"x" * 300 for number in range(200)]
    owner = await opened(start(segment_bytes=40_000), 1)
    positions = await append(owner, *payloads)
    index = folder / "1-0.index"
    content = index.read_bytes()
    other = (folder / "1-1.index").read_bytes()
    match harm:
        case "missing":
            index.unlink()
        case "cut":
            index.write_bytes(content[: len(content) // 2])
        case "junk":
            index.write_bytes(b"junk" * 100)
        case _:
            index.write_bytes(other)

    successor = await opened(start(segment_bytes=40_000, recent_bytes_max=0), 2)

    assert await read_all(successor) == payloads
    for number in (0, 57, 199):
        [entry] = await successor.read(
            positions[number - 1] if number else BEFORE_ALL, entries_max=1, bytes_max=1
        )
        assert (entry.payload, entry.position) == (payloads[number], positions[number])
    assert dict(successor.producers) == {"p": 199}


async def test_an_index_has_a_point_for_every_so_many_bytes(start: Start, folder: Path) -> None:
    owner = await opened(start(), 1)
    await asyncio.gather(
        *(owner.append(NewEntry(b"x" * 100, 1, "p", number)) for number in range(100))
    )
    await owner.close()

    path = str(folder / "1-0.entries")
    with measuring.opened(DISK, path) as handle:
        salt = measuring.read_header(DISK, handle, path)[0].salt
    points = measuring.read_points(DISK, str(folder / "1-0.index"), salt).points

    assert 100 * 100 // 1_000 <= len(points) <= 100 * 150 // 1_000
    assert [point.entry_id for point in points] == sorted(point.entry_id for point in points)


# Disks that refuse ----------------------------------------------------------------------------


class Disk:
    """Lets writes through until it is full; a write that does not fit is written in part."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._pwrite = os.pwrite
        self.free_bytes: int | None = None
        patch.setattr(os, "pwrite", self._write)

    def _write(self, handle: int, content: Sequence[int] | memoryview, offset: int) -> int:
        if self.free_bytes is None:
            return self._pwrite(handle, content, offset)
        if not self.free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part = memoryview(content)[: self.free_bytes]
        self.free_bytes -= len(part)
        return self._pwrite(handle, part, offset)


async def test_a_full_disk_fails_what_is_not_written_and_all_that_follows(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    store = start()
    ledger = await opened(store, 1)
    await append(ledger, b"first")
    heard: list[Exception] = []
    ledger.on_failed(heard.append)
    ledger.on_fenced(lambda: heard.append(Fenced()))
    disk.free_bytes = 30

    results = await asyncio.gather(
        *(ledger.append(NewEntry(b"x" * 50, 1, "p", number)) for number in range(1, 4)),
        ledger.put_state("cursor/a", b"1"),
        return_exceptions=True,
    )
    disk.free_bytes = None
    later = await asyncio.gather(
        ledger.append(NewEntry(b"later", 1, "p", 9)),
        ledger.put_state("cursor/a", b"1"),
        return_exceptions=True,
    )

    assert [type(result) for result in (*results, *later)] == [StorageFailed] * 6
    assert "No space left" in str(results[0])
    assert await read_all(ledger) == [b"first"]
    assert ledger.pending_bytes == store.pending_bytes == 0
    assert heard == [results[0]]

    again = await opened(store, 1)
    assert again is not ledger
    await append(again, b"second")
    assert await read_all(again) == [b"first", b"second"]
    assert await read_all(await opened(start(), 2)) == [b"first", b"second"]


async def test_an_fsync_that_fails_acknowledges_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await opened(start(), 1)
    await append(ledger, b"first")

    def refuse(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", refuse)
        with pytest.raises(StorageFailed, match="Input/output"):
            await ledger.append(NewEntry(b"second", 1, "p", 2))

    with pytest.raises(StorageFailed):
        await ledger.append(NewEntry(b"third", 1, "p", 3))
    assert ledger.entry_count == 1


async def test_a_takeover_on_a_full_disk_fails_and_succeeds_later_in_the_same_epoch(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(await opened(start(), 1), b"first")
    disk = Disk(monkeypatch)
    store = start()
    for free_bytes in (0, 10, 100, 200):
        disk.free_bytes = free_bytes
        with pytest.raises(StorageFailed):
            await opened(store, 2)
    disk.free_bytes = None

    assert await read_all(await opened(store, 2)) == [b"first"]


async def test_an_index_that_cannot_be_written_costs_nothing_else(
    start: Start, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    opens = os.open

    def refuse(path: str, *rest: int) -> int:
        if str(path).endswith(".index"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opens(path, *rest)

    payloads = [b"%03d" % number + b"x" * 500 for number in range(20)]
    with monkeypatch.context() as broken:
        broken.setattr(os, "open", refuse)
        await append(await opened(start(), 1), *payloads)
    assert not (folder / "1-0.index").exists()

    successor = await opened(start(), 2)
    assert await read_all(successor) == payloads
    assert dict(successor.producers) == {"p": 19}


async def test_ledger_pending_bytes_max_are_stored_and_one_more_is_refused(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit everything is stored; one byte more fails, and all that waits with it."""
    overhead = pulsar_limits.LEDGER_PENDING_ENTRY_BYTES
    monkeypatch.setattr(pulsar_limits, "LEDGER_PENDING_BYTES_MAX", 3_000 + 3 * overhead)
    monkeypatch.setattr(pulsar_limits, "LEDGER_PENDING_PAUSE_BYTES", 1_000)
    store = start()
    ledger = await opened(store, 1)
    other = await opened(store, 1, "0a1c00112233445566778899")

    at_limit = [ledger.append(NewEntry(b"x" * 1_000, 1, "p", number)) for number in range(2)]
    at_limit.append(ledger.append(NewEntry(b"x" * 1_000, 1, "p", 3)))
    assert ledger.is_congested
    assert not other.is_congested, "what others have pending does not stop who has nothing"
    assert len(await asyncio.gather(*at_limit)) == 3
    assert not ledger.is_congested

    too_much = [ledger.append(NewEntry(b"x" * 1_000, 1, "p", number)) for number in range(2)]
    too_much.append(ledger.append(NewEntry(b"x" * 1_001, 1, "p", 3)))
    results = await asyncio.gather(*too_much, return_exceptions=True)

    assert [type(result) for result in results] == [StorageFailed] * 3
    assert store.pending_bytes == 0
    await other.append(NewEntry(b"", 1, "p", 1))


# Tidiness and bounds --------------------------------------------------------------------------


async def test_owners_that_left_nothing_leave_no_files(start: Start, folder: Path) -> None:
    for epoch in range(1, 6):
        store = start()
        owner = await opened(store, epoch)
        await owner.put_state("cursor/a", b"%d" % epoch)
        await store.close()

    assert sorted(path.name for path in folder.iterdir()) == ["5-0.state", "claim-5"]
    assert dict((await opened(start(), 6)).state) == {"cursor/a": b"5"}


async def test_an_owner_whose_traces_were_removed_is_fenced_all_the_same(
    start: Start, folder: Path
) -> None:
    first = await opened(start(), 1)
    for epoch in (2, 3):
        store = start()
        await opened(store, epoch)
        await store.close()
    assert not (folder / "claim-1").exists()
    assert not (folder / "fence-1").exists()

    with pytest.raises(Fenced):
        await first.append(NewEntry(b"", 1, "p", 1))


async def test_files_are_removed_with_the_segments_that_are_trimmed(
    start: Start, folder: Path
) -> None:
    owner = await opened(start(segment_bytes=1_500), 1)
    positions = await append(owner, *[b"x" * 700] * 10)
    await owner.trim(positions[5])
    assert {path.name for path in folder.glob("*.entries")} == {"1-3.entries", "1-4.entries"}

    successor = await opened(start(), 2)
    await append(successor, b"last")
    await successor.trim(positions[-1])
    assert {path.name for path in folder.glob("*.entries")} == {"2-0.entries"}
    third = start()
    await opened(third, 3)
    await third.close()
    assert sorted(path.name for path in folder.iterdir()) == [
        "2-0.entries",
        "3-0.state",
        "claim-2",
        "claim-3",
        "fence-2",
        "seal-2",
    ]


async def test_reserved_space_is_given_back_by_an_owner_that_lets_go(
    start: Start, folder: Path
) -> None:
    ledger = await opened(start(segment_bytes=2_000), 1)
    await append(ledger, *[b"x" * 700] * 3)
    await ledger.put_state("cursor/a", b"1")
    sizes = {path.name: path.stat().st_size for path in folder.glob("1-*.*")}
    assert sizes["1-0.entries"] < 3_000, "the next segment has begun"
    assert sizes["1-1.entries"] > pulsar_limits.LEDGER_RESERVE_BYTES_MIN
    assert sizes["1-0.state"] > pulsar_limits.LEDGER_RESERVE_BYTES_MIN

    await ledger.close()

    assert all(path.stat().st_size < 3_000 for path in folder.glob("1-*.*"))
    assert await read_all(await opened(start(), 2)) == [b"x" * 700] * 3


async def test_what_crashed_takeovers_left_is_removed(start: Start, folder: Path) -> None:
    await append(await opened(start(), 1), b"first")
    for name in ("temporary-1-x-seal-0", "temporary-2-y-state", "7-9.txt", "notes"):
        (folder / name).write_bytes(b"junk")

    successor = start()
    await opened(successor, 3)
    await successor.close()

    assert not list(folder.glob("temporary-*"))
    assert (folder / "notes").exists(), "what is not ours stays"


async def test_facts_are_written_anew_when_their_file_is_long(
    start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulsar_limits, "LEDGER_STATE_ROLL_BYTES", 2_000)
    owner = await opened(start(), 1)
    await owner.put_state("schema/1", b"kept")
    for number in range(100):
        await owner.put_state("cursor/a", b"%d" % number + b"x" * 90)

    [state] = folder.glob("*.state")
    assert int(state.stem.partition("-")[2]) >= 3
    await append(owner, b"entry")
    successor = await opened(start(), 2)
    assert dict(successor.state) == {"schema/1": b"kept", "cursor/a": b"99" + b"x" * 90}


async def test_files_kept_open_are_bounded_however_many_topics_are_used(
    start: Start,
) -> None:
    store = start(recent_bytes_max=0, files_max=8)
    ledgers = [await opened(store, 1, f"{number:04x}00") for number in range(30)]
    before = len(os.listdir("/proc/self/fd"))

    for payload in (b"first", b"second"):
        for ledger in ledgers:
            await asyncio.gather(
                ledger.append(NewEntry(payload, 1, "p", 1)), ledger.put_state("k", payload)
            )
    assert [await read_all(ledger) for ledger in ledgers] == [[b"first", b"second"]] * 30

    assert len(os.listdir("/proc/self/fd")) - before <= 8 + 8
    assert len(store.readers.files) == 8


def test_ledger_indexes_max_are_kept_and_one_more_drops_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulsar_limits, "LEDGER_INDEXES_MAX", 2)
    indexes = Indexes(ReadFiles(), 1_000)

    for path, kept in (("a", ["a"]), ("b", ["a", "b"]), ("c", ["b", "c"])):
        indexes.put(path, [])
        assert list(indexes._indexes) == kept


async def test_a_unit_must_have_a_name_that_names_a_directory(start: Start) -> None:
    for topic, unit in (("../x", ""), ("", ""), (TOPIC, "p/0"), ("a.b", "")):
        with pytest.raises(ValueError, match="name no unit"):
            await start().open(topic, unit, 1, topic_name=NAME)


async def test_a_cancelled_waiter_does_not_cancel_the_opening(
    start: Start,
) -> None:
    store = start()
    first = asyncio.ensure_future(opened(store, 1))
    second = asyncio.ensure_future(opened(store, 1))
    await asyncio.sleep(0)
    first.cancel()

    ledger = await second

    assert first.cancelled()
    assert await opened(store, 1) is ledger
