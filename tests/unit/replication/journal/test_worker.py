"""Where the journal's blocking half runs, and how its results come back."""

from __future__ import annotations

import asyncio
import errno
import threading
from functools import partial

import pytest

from nextgen.replication.journal.format import Identity, SegmentHeader
from nextgen.replication.journal.recovery import segment_name
from nextgen.replication.journal.worker import Batch, InlineRunner, SegmentFiles, ThreadRunner
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


async def test_work_runs_on_another_thread_and_its_result_comes_back_to_the_loop() -> None:
    runner, threads = ThreadRunner(), []
    done = asyncio.Event()

    def work() -> None:
        threads.append(threading.current_thread())
        runner.post(lambda: (threads.append(threading.current_thread()), done.set()))

    runner.submit(work)
    await done.wait()
    runner.close()

    assert threads[0] is not threading.main_thread()
    assert threads[1] is threading.main_thread()


async def test_a_timer_that_is_due_after_the_end_does_not_fire() -> None:
    runner, fired = ThreadRunner(), []
    runner.submit(lambda: None)
    runner.call_later(0, lambda: fired.append("late"))

    runner.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert fired == []


async def test_a_timer_fires_on_the_loop() -> None:
    runner, fired = ThreadRunner(), asyncio.Event()
    runner.submit(lambda: None)

    runner.call_later(0, fired.set)
    await fired.wait()

    runner.close()


def test_without_a_loop_nobody_is_called_back() -> None:
    runner, called = ThreadRunner(), []

    runner.post(lambda: called.append("post"))
    runner.call_later(0, lambda: called.append("timer"))
    runner.close()

    assert called == []


def test_after_the_loop_has_ended_nobody_is_called_back() -> None:
    runner, called = ThreadRunner(), []

    async def use() -> None:
        runner.submit(lambda: None)

    asyncio.run(use())
    runner.post(lambda: called.append("post"))
    runner.call_later(0, lambda: called.append("timer"))
    runner.close()

    assert called == []


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


async def test_a_thread_carries_out_work_in_order_and_none_after_its_end() -> None:
    runner, done = ThreadRunner(), []
    last = asyncio.Event()
    for number in range(100):
        runner.submit(partial(done.append, number))
    runner.submit(lambda: runner.post(last.set))
    await last.wait()
    runner.close()

    runner.submit(partial(done.append, 100))
    runner.close()

    assert done == list(range(100))
