"""What a journal promises to the replica that writes to it."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from nextgen.kernel.errors import JournalCorrupted, Overloaded
from nextgen.kernel.limits.cluster import JOURNAL_PENDING_BYTES_MAX
from nextgen.replication.journal.journal import Journal, JournalBroken, JournalEntry, JournalStalled
from nextgen.replication.journal.recovery import Outcome, segment_name
from nextgen.replication.journal.worker import InlineRunner
from nextgen.replication.journal.writers import WriterPool
from nextgen.replication.ports import PositionCompacted
from nextgen.storage.disk import DiskStorage
from tests.support.simulated.disk import SimDisk
from tests.support.simulated.journals import (
    DIRECTORY,
    HeldRunner,
    append_many,
    given_disk,
    open_journal,
    payload_of,
)


def restarted(disk: SimDisk) -> Journal:
    """The journal as it is after a power cut."""
    disk.crash()
    return open_journal(disk)


# The log ------------------------------------------------------------------------------------


def test_an_empty_journal_begins_before_the_first_entry_and_event() -> None:
    journal = open_journal(given_disk())

    assert (journal.first_index, journal.last_index, journal.last_term) == (1, 0, 0)
    assert (journal.base_index, journal.base_term, journal.base_position) == (0, 0, 0)
    assert journal.last_position == 0
    assert journal.hard_state == (0, None)
    assert journal.unverified_index == 0
    assert journal.recovery.outcome is Outcome.NEW


def test_appended_entries_get_dense_indexes_and_positions() -> None:
    journal = open_journal(given_disk())

    indexes = [journal.append(1, b"a", 2), journal.append(1, b"b", 0), journal.append(3, b"c", 1)]

    assert indexes == [1, 2, 3]
    assert journal.entries(1, 3, 1000) == [
        JournalEntry(1, 1, 1, 2, b"a"),
        JournalEntry(2, 1, 3, 0, b"b"),
        JournalEntry(3, 3, 3, 1, b"c"),
    ]
    assert (journal.last_index, journal.last_term, journal.last_position) == (3, 3, 3)
    assert [journal.term_of(index) for index in range(4)] == [0, 1, 1, 3]


def test_a_followers_entry_must_follow_the_last_one() -> None:
    journal = open_journal(given_disk())
    journal.append_entry(JournalEntry(1, 2, 1, 3, b"a"))

    with pytest.raises(AssertionError):
        journal.append_entry(JournalEntry(3, 2, 4, 1, b"c"))
    with pytest.raises(AssertionError):
        journal.append_entry(JournalEntry(2, 1, 4, 1, b"older term"))
    with pytest.raises(AssertionError):
        journal.append_entry(JournalEntry(2, 2, 5, 1, b"position gap"))

    journal.append_entry(JournalEntry(2, 2, 4, 1, b"b"))
    assert journal.last_position == 4


def test_a_refused_entry_leaves_no_trace() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    with pytest.raises(AssertionError):
        journal.append_entry(JournalEntry(1, 2, 9, 1, b"position gap"))

    journal.append(1, b"a", 1)
    journal.sync()

    assert restarted(disk).entry(1).payload == b"a"


def test_reading_stops_before_the_byte_limit_but_gives_one_entry() -> None:
    journal = open_journal(given_disk())
    append_many(journal, 5, size=100)

    assert len(journal.entries(1, 5, 300)) == 3
    assert len(journal.entries(1, 5, 299)) == 2
    assert len(journal.entries(2, 5, 1)) == 1
    assert len(journal.entries(2, 3, 10_000)) == 2
    assert journal.entries(6, 9, 100) == []


def test_a_position_is_found_in_the_entry_that_holds_its_event() -> None:
    journal = open_journal(given_disk())
    for events in (0, 2, 0, 0, 3, 0):
        journal.append(1, b"x", events)

    found = [journal.index_of_position(position) for position in range(1, 8)]

    assert found == [2, 2, 5, 5, 5, 7, 7]
    with pytest.raises(PositionCompacted):
        journal.index_of_position(0)


def test_an_old_payload_is_read_from_disk_and_new_ones_stay_in_memory() -> None:
    disk = given_disk()
    journal = open_journal(disk, cache_bytes=250)
    append_many(journal, 10, size=100)
    journal.sync()
    append_many(journal, 1, size=100)

    assert [entry.payload for entry in journal.entries(1, 11, 10_000)] == [
        payload_of(index) for index in range(1, 12)
    ]


def test_an_old_payload_that_is_damaged_on_disk_is_not_handed_out() -> None:
    disk = given_disk()
    journal = open_journal(disk, cache_bytes=0)
    append_many(journal, 3)
    journal.sync()
    append_many(journal, 1)
    disk.damage(DIRECTORY / segment_name(1), 600, b"rot")

    with pytest.raises(JournalCorrupted, match="move /data/journal/7 away"):
        journal.entries(1, 3, 10_000)


def test_only_a_few_old_segments_are_open_at_a_time() -> None:
    disk = given_disk()
    journal = open_journal(disk, cache_bytes=0)
    append_many(journal, 400)
    journal.sync()
    append_many(journal, 1)

    assert len(journal.entries(1, 400, 10**9)) == 400
    journal.close()


# Term and vote, truncation, cutting ---------------------------------------------------------


def test_term_and_vote_survive_a_power_cut_once_synced() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    journal.set_hard_state(3, "node-2")
    journal.sync()
    journal.set_hard_state(4, None)

    assert journal.hard_state == (4, None)
    assert restarted(disk).hard_state == (3, "node-2")


def test_a_truncated_entry_is_gone_and_its_positions_are_used_again() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 5)
    journal.truncate_from(3)
    journal.append(2, b"other", 4)
    journal.sync()

    for log in (journal, restarted(disk)):
        assert (log.last_index, log.last_term, log.last_position) == (3, 2, 6)
        assert log.entry(3) == JournalEntry(3, 2, 3, 4, b"other")


def test_cutting_drops_whole_segments_and_keeps_the_term_before() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 100, term=4)
    size_before = journal.bytes_on_disk

    journal.cut_before(60)
    journal.sync()

    assert 40 < journal.first_index <= 60
    assert journal.base_index == journal.first_index - 1
    assert (journal.base_term, journal.base_position) == (4, journal.base_index)
    assert journal.bytes_on_disk < size_before
    assert journal.bytes_on_disk == sum(
        len(data) for name, data in disk.image().items() if name.endswith(".journal")
    )
    for log in (journal, restarted(disk)):
        assert log.term_of(log.base_index) == 4
        assert log.entry(60).payload == payload_of(60)
        with pytest.raises(PositionCompacted):
            log.index_of_position(log.base_position)


def test_cutting_behind_the_last_entry_keeps_the_segment_that_is_written_to() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 100)

    journal.cut_before(101)
    journal.cut_before(1)
    journal.sync()

    assert 60 < journal.first_index <= 101
    assert restarted(disk).first_index == journal.first_index
    with pytest.raises(AssertionError):
        journal.cut_before(102)


def test_a_truncation_below_the_segment_that_remains_is_understood() -> None:
    """1. Entries 1-40 fill segments. 2. 35 on are truncated and written again, in the last
    segment. 3. Everything before that segment is cut. Its header speaks of entry 40."""
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 40)
    journal.truncate_from(35)
    append_many(journal, 3, term=2)

    journal.cut_before(35)
    journal.sync()

    for log in (journal, restarted(disk)):
        assert (log.last_index, log.last_position) == (37, 37)
        assert [entry.term for entry in log.entries(35, 37, 10_000)] == [2, 2, 2]
        assert log.term_of(34) == 1


def test_after_a_reset_the_log_begins_behind_the_snapshot() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 100)
    journal.set_hard_state(6, "node-3")

    journal.reset_to(500, 5, 2_000)
    journal.sync()

    for log in (journal, restarted(disk)):
        assert (log.first_index, log.last_index, log.last_term) == (501, 500, 5)
        assert (log.base_index, log.base_term, log.base_position) == (500, 5, 2_000)
        assert log.last_position == 2_000
        assert log.hard_state == (6, "node-3")
        assert log.bytes_on_disk == 4096
    assert journal.append(6, b"next", 1) == 501
    assert journal.entry(501).first_position == 2_001


def test_a_reset_that_lost_power_before_the_old_segments_went_is_a_reset() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 100)
    disk.ignore_sync("journal.drop_segment")
    journal.reset_to(500, 5, 2_000)
    journal.sync()

    again = restarted(disk)

    assert len(disk.list_names(DIRECTORY)) > 3
    assert (again.first_index, again.last_index, again.last_term) == (501, 500, 5)
    assert again.last_position == 2_000


def test_the_condition_of_a_journal_can_be_read_from_its_repr() -> None:
    journal = open_journal(given_disk())
    append_many(journal, 2)

    assert repr(journal) == "<Journal group=7 first=1 last=2 durable=0 term=0 ok>"


# Durability ---------------------------------------------------------------------------------


def test_nobody_is_called_back_before_the_sync() -> None:
    disk, runner, done = given_disk(), HeldRunner(), []
    journal = open_journal(disk, runner=runner)
    journal.append(1, b"a", 1)
    journal.when_durable(lambda: done.append("a"))

    assert (done, journal.durable_index) == ([], 0)
    runner.work()

    assert (done, journal.durable_index) == (["a"], 1)
    assert journal.pending_bytes == 0


def test_what_is_durable_already_calls_back_at_once() -> None:
    done: list[str] = []
    journal = open_journal(given_disk(), runner=HeldRunner())

    journal.when_durable(lambda: done.append("now"))

    assert done == ["now"]


def test_appends_during_a_sync_share_the_next_one() -> None:
    disk, runner, done = given_disk(), HeldRunner(), []
    journal = open_journal(disk, runner=runner)
    for name in "abcd":
        journal.append(1, name.encode(), 1)
        journal.when_durable(lambda name=name: done.append(name))
    before = disk.syncs["journal.batch"]

    runner.work()
    assert (done, journal.durable_index) == (["a"], 1)
    runner.work()

    assert done == ["a", "b", "c", "d"]
    assert disk.syncs["journal.batch"] - before == 2


def test_a_truncation_during_a_sync_takes_back_what_the_sync_covered() -> None:
    """1. Entries 1-3 are being synced. 2. 2 and 3 are truncated. 3. The sync returns: only
    entry 1 is durable, a new 2 is not."""
    disk, runner = given_disk(), HeldRunner()
    journal = open_journal(disk, runner=runner)
    append_many(journal, 3)
    journal.flush()
    journal.truncate_from(2)
    journal.append(2, b"new", 1)

    runner.work()
    assert journal.durable_index == 1

    journal.flush()
    runner.work()
    assert journal.durable_index == 2


def test_the_barrier_takes_over_what_the_worker_has_not_begun() -> None:
    disk, runner, done = given_disk(), HeldRunner(), []
    journal = open_journal(disk, runner=runner)
    journal.append(1, b"a", 1)
    journal.when_durable(lambda: done.append("a"))
    journal.set_hard_state(2, "node-1")

    journal.sync()

    assert (done, journal.durable_index) == (["a"], 1)
    runner.work()
    assert done == ["a"]
    assert restarted(disk).hard_state == (2, "node-1")


def test_a_callback_that_raises_does_not_keep_the_next_from_being_called() -> None:
    runner, done = HeldRunner(), []
    journal = open_journal(given_disk(), runner=runner)
    journal.append(1, b"a", 1)
    journal.when_durable(lambda: 1 / 0)
    journal.when_durable(lambda: done.append("second"))

    with pytest.raises(ZeroDivisionError):
        runner.work()

    assert done == ["second"]


def test_too_much_that_waits_for_the_disk_is_refused() -> None:
    journal = open_journal(given_disk(), runner=HeldRunner(), segment_bytes=16 * 1024 * 1024)
    payload = bytes(4 * 1024 * 1024)
    while journal.pending_bytes <= JOURNAL_PENDING_BYTES_MAX:
        last = journal.append(1, payload, 1)

    with pytest.raises(Overloaded):
        journal.append(1, b"one more", 1)
    assert journal.last_index == last


def test_a_closed_journal_was_synced_and_calls_nobody_back() -> None:
    disk, done = given_disk(), []
    journal = open_journal(disk, runner=HeldRunner())
    journal.append(1, b"a", 1)
    journal.when_durable(lambda: done.append("a"))

    journal.close()
    journal.close()

    assert done == []
    assert restarted(disk).last_index == 1


def test_a_closed_journal_takes_nothing() -> None:
    journal = open_journal(given_disk())
    journal.close()

    with pytest.raises(AssertionError, match="closed"):
        journal.append(1, b"a", 1)


# A disk that is full or broken --------------------------------------------------------------


def test_a_full_disk_stops_acknowledgements_until_there_is_space() -> None:
    disk, runner, done = given_disk(), InlineRunner(), []
    journal = open_journal(disk, runner=runner)
    disk.fill_up()
    append_many(journal, 50)  # More than the preallocated segment takes.
    journal.when_durable(lambda: done.append("all"))

    assert journal.stalled is not None
    assert "full" in repr(journal)
    assert done == []
    runner.fire_timers()
    assert done == []

    append_many(journal, 1)
    disk.free()
    runner.fire_timers()

    assert (done, journal.stalled) == (["all"], None)
    journal.sync()
    assert [entry.payload for entry in restarted(disk).entries(1, 51, 10**6)] == [
        payload_of(index) for index in range(1, 52)
    ]


def test_a_full_disk_leaves_no_half_made_segment_in_the_way() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    disk.fill_up(bytes_left=100)
    append_many(journal, 50)
    with pytest.raises(JournalStalled):
        journal.sync()

    assert disk.list_names(DIRECTORY) == [segment_name(1), "durable.mark"]


def test_a_full_disk_does_not_hinder_what_fits_into_the_segment() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    disk.fill_up()

    append_many(journal, 10)
    journal.sync()

    assert journal.durable_index == 10


def test_the_barrier_says_that_the_disk_is_full_and_works_again_later() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    disk.fill_up()
    append_many(journal, 50)
    with pytest.raises(JournalStalled, match="full"):
        journal.sync()

    disk.free()
    journal.sync()

    assert (journal.durable_index, journal.stalled) == (50, None)


def test_a_sync_that_fails_for_lack_of_space_is_written_again_before_it_is_believed() -> None:
    """Thin provisioning: the write fits into the cache and the sync finds no space. The
    system may drop the bytes then, so syncing again without writing proves nothing."""
    disk = given_disk()
    journal = open_journal(disk)
    journal.append(1, b"a", 1)
    disk.fail_sync("journal.batch", errno.ENOSPC)
    with pytest.raises(JournalStalled):
        journal.sync()
    disk.damage(DIRECTORY / segment_name(1), 512, bytes(200))

    journal.sync()

    assert restarted(disk).entry(1).payload == b"a"


@pytest.mark.parametrize(
    "label", ["journal.batch", "journal.segment_header", "journal.segment_name"]
)
def test_a_sync_that_fails_breaks_the_journal_for_good(label: str) -> None:
    disk, runner, broken, done = given_disk(), InlineRunner(), [], []
    journal = open_journal(disk, runner=runner, on_broken=broken.append)
    disk.fail_sync(label, errno.EIO)
    append_many(journal, 50)
    journal.when_durable(lambda: done.append("never"))
    syncs = disk.syncs.total()

    runner.fire_timers()
    journal.flush()
    with pytest.raises(JournalBroken):
        journal.sync()
    with pytest.raises(JournalBroken):
        journal.append(1, b"b", 1)
    journal.close()

    assert [type(error) for error in broken] == [JournalBroken]
    assert done == []
    assert disk.syncs.total() == syncs
    assert "broken" in repr(journal)


def test_a_disk_that_broke_under_the_barrier_and_the_worker_is_reported_once() -> None:
    disk, runner, broken = given_disk(), HeldRunner(), []
    journal = open_journal(disk, runner=runner, on_broken=broken.append)
    journal.append(1, b"a", 1)
    journal.when_durable(lambda: None)
    disk.fail_sync("journal.batch", errno.EIO)

    with pytest.raises(JournalBroken):
        journal.sync()
    runner.work()

    assert len(broken) == 1
    assert disk.syncs["journal.batch"] == 1


def test_a_retry_that_comes_too_late_does_nothing() -> None:
    """The barrier got through before the timer was due."""
    disk, runner = given_disk(), InlineRunner()
    journal = open_journal(disk, runner=runner)
    disk.fill_up()
    append_many(journal, 50)
    journal.flush()
    disk.free()
    journal.sync()
    syncs = disk.syncs.total()

    runner.fire_timers()

    assert disk.syncs.total() == syncs


def test_a_sync_that_returns_after_the_end_calls_nobody_back() -> None:
    disk, runner, done = given_disk(), HeldRunner(), []
    journal = open_journal(disk, runner=runner)
    journal.append(1, b"a", 1)
    journal.when_durable(lambda: done.append("a"))
    late = runner.held.popleft()
    journal.close()

    late()

    assert done == []


def test_a_broken_disk_that_nobody_watches_for_is_raised() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    disk.fail_sync("journal.batch", errno.EIO)
    journal.append(1, b"a", 1)

    with pytest.raises(JournalBroken):
        journal.when_durable(lambda: None)


# On a real loop, thread and disk ------------------------------------------------------------


def open_on_disk(directory: Path) -> Journal:
    return Journal.open(
        DiskStorage(),
        directory,
        cluster_id="c",
        group_id=1,
        node_id="n",
        runner=WriterPool().runner(),
        segment_bytes=65_536,
    )


async def test_the_worker_thread_syncs_while_the_loop_goes_on(tmp_path: Path) -> None:
    journal = open_on_disk(tmp_path / "journal")
    loop = asyncio.get_running_loop()
    waiting = []
    for number in range(200):
        future: asyncio.Future[int] = loop.create_future()
        index = journal.append(1, payload_of(number, 1000), 1)
        journal.when_durable(lambda future=future, index=index: future.set_result(index))
        waiting.append(future)
        await asyncio.sleep(0)

    assert await asyncio.gather(*waiting) == list(range(1, 201))
    assert journal.durable_index == 200
    journal.close()

    again = open_on_disk(tmp_path / "journal")
    assert again.entry(200).payload == payload_of(199, 1000)
    assert again.recovery.outcome is Outcome.CLEAN
    again.close()


async def test_the_barrier_waits_for_the_worker_thread(tmp_path: Path) -> None:
    journal = open_on_disk(tmp_path / "journal")
    for _ in range(50):
        journal.append(1, payload_of(1, 5000), 1)
        journal.when_durable(lambda: None)
        journal.set_hard_state(journal.hard_state[0] + 1, "n")
        journal.sync()
        assert journal.pending_bytes == 0
    journal.close()


def test_a_journal_can_be_used_without_a_loop(tmp_path: Path) -> None:
    journal = open_on_disk(tmp_path / "journal")
    journal.append(1, b"a", 1)
    journal.sync()
    journal.close()

    assert open_on_disk(tmp_path / "journal").last_index == 1
