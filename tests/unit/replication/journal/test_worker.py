"""What the blocking half of a journal does to its files."""

from __future__ import annotations

import errno

import pytest

from nextgen.replication.journal.format import Identity, SegmentHeader
from nextgen.replication.journal.recovery import segment_name
from nextgen.replication.journal.worker import Batch, InlineRunner, SegmentFiles
from nextgen.storage.disk import make_directory_durably
from tests.support.simulated.disk import SimDisk
from tests.support.simulated.journals import DIRECTORY, SEGMENT_BYTES, given_disk

IDENTITY = Identity.of("cluster", "node-1", 7)


def header(sequence: int) -> SegmentHeader:
    return SegmentHeader(IDENTITY, sequence, 0, 0, 1, 0, "", 0)


def given_files() -> tuple[SimDisk, SegmentFiles]:
    disk = given_disk()
    make_directory_durably(disk, DIRECTORY, label="setup")
    files = SegmentFiles(disk, DIRECTORY, IDENTITY, SEGMENT_BYTES)
    files.start_segment(header(1))
    return disk, files


def test_an_inline_runner_forgets_its_timers_when_it_is_closed() -> None:
    runner, fired = InlineRunner(), []
    runner.call_later(500, lambda: fired.append("late"))

    runner.close()
    runner.fire_timers()

    assert fired == []


def test_neighbouring_writes_are_one_write_and_one_sync() -> None:
    disk, files = given_files()
    batch = Batch()
    for number in range(10):
        batch.write(bytes([number + 1]) * 8, 512 + 8 * number)

    batch.run(files)

    assert batch.done
    assert len(batch.steps) == 1
    assert disk.syncs["journal.batch"] == 1
    assert disk.read(DIRECTORY / segment_name(1))[512:592] == b"".join(
        bytes([number + 1]) * 8 for number in range(10)
    )


def test_a_batch_that_is_done_is_not_carried_out_again() -> None:
    disk, files = given_files()
    batch = Batch()
    batch.write(b"x", 512)

    batch.run(files)
    batch.run(files)

    assert disk.syncs["journal.batch"] == 1


def test_a_retry_begins_behind_the_last_step_that_is_durable() -> None:
    disk, files = given_files()
    batch = Batch()
    batch.write(b"x", 512)
    batch.start_segment(header(2))
    batch.write(b"y", 512)
    batch.drop_segments([1])
    disk.fail_sync("journal.batch", errno.ENOSPC, times=2)
    syncs = []
    disk.before_sync = syncs.append

    for _ in range(3):
        batch.run(files)

    assert batch.done
    assert syncs == [
        "journal.batch",
        "journal.batch",
        "journal.batch",
        "journal.segment_header",
        "journal.segment_name",
        "journal.batch",
        "journal.drop_segment",
    ]
    assert disk.list_names(DIRECTORY) == ["000000000002.journal", "durable.mark"]


@pytest.mark.parametrize(
    ("error", "may_retry"),
    [(OSError(errno.ENOSPC, ""), True), (OSError(errno.EIO, ""), False), (KeyError(), False)],
)
def test_only_a_full_disk_is_tried_again(error: Exception, may_retry: bool) -> None:
    class Refuses(SegmentFiles):
        tried = 0

        def write(self, data: bytes, offset: int) -> None:
            self.tried += 1
            raise error

    files = Refuses(given_disk(), DIRECTORY, IDENTITY, SEGMENT_BYTES)
    batch = Batch()
    batch.write(b"x", 512)

    batch.run(files)
    batch.run(files)

    assert not batch.done
    assert batch.error is error
    assert batch.may_retry is may_retry
    assert files.tried == (2 if may_retry else 1)


def test_files_that_wrote_nothing_have_nothing_to_sync() -> None:
    disk, files = given_files()
    unused = SegmentFiles(disk, DIRECTORY, IDENTITY, SEGMENT_BYTES)
    before = disk.syncs.total()

    files.sync()
    unused.sync()
    unused.sync_mark()
    unused.close()

    assert disk.syncs.total() == before
