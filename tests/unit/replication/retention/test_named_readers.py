"""Named readers: on disk before they are promised, kept over restarts, ended by their time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from nextgen.kernel.errors import InvalidRequest, Overloaded, PositionCompacted, Unavailable
from nextgen.kernel.limits.stream import (
    LOG_READER_ID_BYTES_MAX,
    LOG_READER_TTL_MS_MAX,
    LOG_READERS_MAX,
    POSITION_MAX,
)
from nextgen.replication.retention.log_retention import LogRetention
from nextgen.replication.retention.named_readers import (
    READERS_NAME,
    NamedReaders,
    ReadersFile,
    StoredReader,
)
from nextgen.storage.disk import DiskStorage
from tests.support.scenarios import run_by
from tests.support.simulated.disk import PowerCut, SimDisk
from tests.support.simulated.virtual_time import run_virtual
from tests.unit.replication.retention.test_log_retention import CountedLog

MINUTE_MS = 60_000


class Replica:
    """A log with readers in a directory. ``restart`` forgets all that is not on disk."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = CountedLog()
        self.disk_refuses = False
        self.writes = 0
        self.restart()

    def restart(self) -> None:
        self.retention = LogRetention(self.log)
        file = ReadersFile(DiskStorage(), self.directory)
        self.readers = NamedReaders(self.retention, file, self._blocking)

    def cut_before(self, index: int) -> None:
        self.retention.allow_cut_before(index)
        self.log.settle()

    async def _blocking(self, work: Callable[[], None]) -> None:
        await asyncio.sleep(0)
        if self.disk_refuses:
            raise OSError(28, "no space left on device")
        self.writes += 1
        work()


async def test_a_reader_keeps_the_log_from_its_position_on(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.readers.pin("exporter", 301, MINUTE_MS)

    replica.cut_before(501)

    assert replica.log.first_index == 301
    assert replica.readers.readers()[0].position == 301


async def test_a_reader_moves_on_and_never_back(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.readers.pin("exporter", 321, MINUTE_MS)
    await replica.readers.pin("exporter", 401, MINUTE_MS)
    await replica.readers.pin("exporter", 341, MINUTE_MS)

    replica.cut_before(501)

    assert replica.log.first_index == 401
    assert [reader.position for reader in replica.readers.readers()] == [401]


async def test_a_restart_pins_again_before_anything_can_be_cut(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.readers.pin("exporter", 301, MINUTE_MS)
    replica.readers.stop()

    replica.restart()
    replica.cut_before(501)

    assert replica.log.first_index == 301
    (reader,) = replica.readers.readers()
    assert (reader.reader_id, reader.position, reader.is_broken) == ("exporter", 301, False)


async def test_a_released_reader_is_gone_after_a_restart_too(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.readers.pin("exporter", 301, MINUTE_MS)
    await replica.readers.pin("exporter", 0, 0)
    assert replica.readers.readers() == ()

    replica.restart()

    assert replica.readers.readers() == ()


@run_by(run_virtual)
async def test_the_pin_of_a_reader_that_does_not_renew_ends_and_is_counted(
    *, tmp_path: Path
) -> None:
    replica = Replica(tmp_path)
    await replica.readers.pin("exporter", 301, MINUTE_MS)
    await asyncio.sleep(MINUTE_MS / 1000 - 1)
    await replica.readers.pin("exporter", 301, MINUTE_MS)
    await asyncio.sleep(MINUTE_MS / 1000 - 1)
    replica.cut_before(501)
    assert (replica.readers.expired, replica.log.first_index) == (0, 301)
    assert replica.readers.readers()[0].expires_in_ms == 1_000

    await asyncio.sleep(2)
    replica.log.settle()

    # What it kept goes at once, not with the next snapshot.
    assert (replica.readers.expired, replica.log.first_index) == (1, 501)
    assert replica.readers.readers() == ()
    replica.restart()
    assert replica.readers.readers() == ()


async def test_renewing_without_moving_writes_nothing(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    for _ in range(10):
        await replica.readers.pin("exporter", 301, MINUTE_MS)

    assert replica.writes == 1


async def test_a_position_that_is_gone_is_refused_with_the_oldest(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    replica.cut_before(501)

    with pytest.raises(PositionCompacted) as refused:
        await replica.readers.pin("exporter", 500, MINUTE_MS)

    assert (refused.value.asked, refused.value.oldest) == (500, 501)
    assert replica.readers.readers() == ()


async def test_a_broken_reader_is_shown_until_it_pins_what_is_there(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.readers.pin("exporter", 301, MINUTE_MS)
    # A snapshot of a leader replaces the log.
    replica.log.first_index = 701

    assert [reader.is_broken for reader in replica.readers.readers()] == [True]
    assert replica.retention.broken == 1
    with pytest.raises(PositionCompacted):
        await replica.readers.pin("exporter", 301, MINUTE_MS)
    await replica.readers.pin("exporter", 701, MINUTE_MS)

    assert [reader.is_broken for reader in replica.readers.readers()] == [False]


async def test_a_reader_whose_log_is_gone_at_a_restart_is_not_pinned(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.readers.pin("exporter", 301, MINUTE_MS)
    replica.readers.stop()
    replica.log.first_index = 701

    replica.restart()

    assert replica.readers.readers() == ()


async def test_a_refusing_disk_is_logged_and_the_pin_still_holds(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    replica.disk_refuses = True
    with pytest.raises(Unavailable, match="not on disk"):
        await replica.readers.pin("exporter", 301, MINUTE_MS)
    replica.cut_before(501)
    assert replica.log.first_index == 301

    replica.disk_refuses = False
    await replica.readers.pin("exporter", 301, MINUTE_MS)
    replica.restart()

    assert [reader.reader_id for reader in replica.readers.readers()] == ["exporter"]


@pytest.mark.parametrize("place", [0, 3, 4, -1])
async def test_a_damaged_file_is_noticed_and_counts_as_none(tmp_path: Path, place: int) -> None:
    replica = Replica(tmp_path)
    await replica.readers.pin("exporter", 301, MINUTE_MS)
    replica.readers.stop()
    path = tmp_path / READERS_NAME
    data = bytearray(path.read_bytes())
    data[place] ^= 0x01
    path.write_bytes(data)

    replica.restart()

    assert replica.readers.readers() == ()


async def test_a_file_that_ends_early_counts_as_none(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.readers.pin("exporter", 301, MINUTE_MS)
    replica.readers.stop()
    path = tmp_path / READERS_NAME
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        replica.restart()
        assert replica.readers.readers() == ()


async def test_there_are_so_many_named_readers_and_not_one_more(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    for number in range(LOG_READERS_MAX):
        await replica.readers.pin(f"reader-{number}", 1, MINUTE_MS)
    with pytest.raises(Overloaded, match="named readers"):
        await replica.readers.pin("one-more", 1, MINUTE_MS)

    await replica.readers.pin("reader-0", 2, MINUTE_MS)
    await replica.readers.pin("reader-0", 0, 0)
    await replica.readers.pin("one-more", 1, MINUTE_MS)

    assert replica.readers.count == LOG_READERS_MAX


@pytest.mark.parametrize(
    ("reader_id", "position", "ttl_ms"),
    [
        ("", 1, MINUTE_MS),
        ("x" * (LOG_READER_ID_BYTES_MAX + 1), 1, MINUTE_MS),
        ("a\nb", 1, MINUTE_MS),
        ("exporter", 0, MINUTE_MS),
        ("exporter", POSITION_MAX + 1, MINUTE_MS),
        ("exporter", 1, LOG_READER_TTL_MS_MAX + 1),
    ],
)
async def test_what_is_beyond_a_bound_is_refused(
    tmp_path: Path, reader_id: str, position: int, ttl_ms: int
) -> None:
    replica = Replica(tmp_path)

    with pytest.raises(InvalidRequest):
        await replica.readers.pin(reader_id, position, ttl_ms)

    assert replica.readers.readers() == ()


async def test_what_is_at_its_bound_is_taken(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    name = "x" * LOG_READER_ID_BYTES_MAX

    await replica.readers.pin(name, POSITION_MAX, LOG_READER_TTL_MS_MAX)

    assert [reader.reader_id for reader in replica.readers.readers()] == [name]


# Power cuts --------------------------------------------------------------------------------------

GROUP = Path("/group-1")
BEFORE = (StoredReader("exporter", 301, MINUTE_MS),)
AFTER = (StoredReader("checker", 1, MINUTE_MS), StoredReader("exporter", 401, MINUTE_MS))


def disk_with_readers() -> SimDisk:
    disk = SimDisk()
    disk.make_directory(GROUP)
    disk.sync_directory(Path("/"), label="test")
    ReadersFile(disk, GROUP).store(BEFORE)
    return disk


def operations_of_a_store() -> int:
    for operations in range(1, 100):
        disk = disk_with_readers()
        disk.cut_power_after(operations)
        try:
            ReadersFile(disk, GROUP).store(AFTER)
        except PowerCut:
            continue
        return operations
    raise AssertionError("a store never ends")


@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_at_any_operation_leaves_the_old_readers_or_the_new(seed: int) -> None:
    for operations in range(1, operations_of_a_store() + 1):
        disk = disk_with_readers()
        disk.cut_power_after(operations)
        with contextlib.suppress(PowerCut):
            ReadersFile(disk, GROUP).store(AFTER)
        disk.crash(seed)

        assert ReadersFile(disk, GROUP).stored in (BEFORE, AFTER)


@pytest.mark.parametrize("label", ["readers.file", "readers.name"])
def test_without_either_sync_a_promised_reader_is_lost(label: str) -> None:
    honest, lying = disk_with_readers(), disk_with_readers()
    lying.ignore_sync(label)
    for disk in (honest, lying):
        ReadersFile(disk, GROUP).store(AFTER)
        disk.crash()

    assert ReadersFile(honest, GROUP).stored == AFTER
    assert ReadersFile(lying, GROUP).stored != AFTER
