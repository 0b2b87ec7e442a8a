"""What a journal believes of what it finds on disk, and what it refuses to touch."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextgen.kernel.errors import JournalCorrupted, RefusesToStart, WrongCluster
from nextgen.replication.journal.format import (
    HEADER_BYTES,
    RECORD_HEADER_BYTES,
    Kind,
    address_of,
    encode_record,
    record_bytes,
)
from nextgen.replication.journal.journal import Journal
from nextgen.replication.journal.recovery import (
    MARK_NAME,
    PREPARING_NAME,
    UNKNOWN_VOTE,
    Outcome,
    segment_name,
)
from nextgen.replication.journal.unverified import UNKNOWN_INDEX
from tests.support.simulated.disk import SimDisk
from tests.support.simulated.journals import (
    DIRECTORY,
    append_many,
    given_disk,
    open_journal,
    payload_of,
)

ENTRY_BYTES = record_bytes(100)
ROT = b"\xff\x00\xff"


def offset_of_entry(index: int) -> int:
    """Where entry ``index`` begins if all in the segment are ``append_many``'s."""
    return HEADER_BYTES + (index - 1) * ENTRY_BYTES


def given_journal(entries: int = 10, *, term: int = 1) -> SimDisk:
    """A disk with a journal that was synced once and closed, and no mark beside it."""
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, entries, term=term)
    journal.sync()
    journal.close()
    forget_mark(disk)
    return disk


def forget_mark(disk: SimDisk) -> None:
    disk.damage(DIRECTORY / MARK_NAME, 0, bytes(512))


def damage_entry(disk: SimDisk, index: int, data: bytes = ROT) -> None:
    offset = offset_of_entry(index) + RECORD_HEADER_BYTES
    disk.damage(DIRECTORY / segment_name(1), offset, data)


def check_nothing_is_touched(disk: SimDisk, error: type[Exception], match: str) -> None:
    before = disk.image()
    with pytest.raises(error, match=match):
        open_journal(disk)
    assert disk.image() == before


# A tail that may be cut ---------------------------------------------------------------------


def test_a_journal_that_was_closed_is_clean() -> None:
    journal = open_journal(given_journal())

    assert journal.recovery.outcome is Outcome.CLEAN
    assert (journal.last_index, journal.durable_index, journal.unverified_index) == (10, 10, 0)


@pytest.mark.parametrize("sectors", [{2}, {2, 3}, {3}, {2, 4}, {4}, {3, 4}])
def test_a_write_that_a_power_cut_left_in_part_is_cut_and_the_replica_may_vote(
    sectors: set[int],
) -> None:
    """Entries 1-4 are synced; 5-12 are being written when some of their sectors arrive."""
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 4)
    journal.sync()
    append_many(journal, 8)
    disk.fail_sync("journal.batch", 28)
    journal.flush()
    disk.crash(
        keep=lambda what: what in {f"sector {number} of {PREPARING_NAME}" for number in sectors}
    )

    journal = open_journal(disk)

    assert journal.recovery.outcome is Outcome.TORN_TAIL
    assert journal.last_index >= 4
    assert journal.unverified_index == 0
    assert [entry.payload for entry in journal.entries(1, 12, 10**6)] == [
        payload_of(index) for index in range(1, journal.last_index + 1)
    ]
    assert journal.append(1, b"goes on", 1) == journal.last_index
    journal.sync()
    disk.crash()
    assert open_journal(disk).recovery.outcome is Outcome.CLEAN


def test_a_file_that_lost_its_preallocated_end_is_given_it_back() -> None:
    disk = given_journal()
    node = disk._file(DIRECTORY / segment_name(1))
    del node.data[offset_of_entry(11) :]
    node.durable = bytes(node.data)

    journal = open_journal(disk)

    assert (journal.recovery.outcome, journal.last_index) == (Outcome.CLEAN, 10)
    assert len(disk.read(DIRECTORY / segment_name(1))) == 4096


def test_a_segment_that_was_never_finished_is_cleared_away() -> None:
    disk = given_journal()
    handle = disk.open(DIRECTORY / PREPARING_NAME, create=True)
    disk.pwrite(handle, b"half", 0)

    open_journal(disk)

    assert PREPARING_NAME not in disk.list_names(DIRECTORY)


# Damage in what was durable -----------------------------------------------------------------


def test_damage_before_a_record_that_was_written_later_leaves_the_replica_unverified() -> None:
    """Entry 10 was written after entry 3 was synced, and says so."""
    disk = given_disk()
    journal = open_journal(disk)
    for _ in range(10):
        append_many(journal, 1, term=2)
        journal.sync()
    journal.close()
    forget_mark(disk)
    damage_entry(disk, 3)

    journal = open_journal(disk)

    assert journal.recovery.outcome is Outcome.DAMAGED_TAIL
    assert (journal.recovery.old_last_index, journal.recovery.old_term) == (10, 2)
    assert (journal.last_index, journal.unverified_index) == (2, UNKNOWN_INDEX)


def test_damage_before_the_durable_mark_leaves_the_replica_unverified() -> None:
    """Nothing was written after the last sync, and a whole sector turned to zeros: only the
    mark tells it from a torn write."""
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 10, term=2)
    journal.set_hard_state(5, "node-2")
    journal.sync()
    journal.close()
    disk.damage(DIRECTORY / segment_name(1), 1024, bytes(4096 - 1024))

    journal = open_journal(disk)

    assert journal.recovery.outcome is Outcome.DAMAGED_TAIL
    assert (journal.recovery.old_last_index, journal.recovery.old_term) == (10, 5)
    assert journal.last_index == 3


def test_flipped_bits_in_a_complete_record_leave_the_replica_unverified() -> None:
    """No mark and nothing later; but every sector was written, so no write was cut short."""
    disk = given_journal()
    damage_entry(disk, 10)

    journal = open_journal(disk)

    assert journal.recovery.outcome is Outcome.DAMAGED_TAIL
    assert (journal.last_index, journal.unverified_index) == (9, UNKNOWN_INDEX)


@pytest.mark.parametrize("field", [0, 4, 8, 12, 16, 20, 24, 32, 40, 48])
def test_damage_in_any_field_of_a_record_header_is_noticed(field: int) -> None:
    disk = given_journal()
    offset = offset_of_entry(10) + field
    before = disk.read(DIRECTORY / segment_name(1))[offset]
    disk.damage(DIRECTORY / segment_name(1), offset, bytes([before ^ 0x10]))

    journal = open_journal(disk)

    assert (journal.recovery.outcome, journal.last_index) == (Outcome.DAMAGED_TAIL, 9)


def test_an_unverified_replica_has_spent_its_vote_and_stays_unverified_over_restarts() -> None:
    disk = given_journal(term=3)
    damage_entry(disk, 7)
    open_journal(disk).close()
    disk.crash()

    journal = open_journal(disk)

    assert journal.recovery.outcome is Outcome.CLEAN
    assert journal.unverified_index == UNKNOWN_INDEX
    assert journal.hard_state == (3, UNKNOWN_VOTE)
    assert journal.last_index == 6


def test_an_unverified_replica_votes_again_once_a_leader_has_covered_it() -> None:
    disk = given_journal()
    damage_entry(disk, 7)
    journal = open_journal(disk)
    append_many(journal, 4, term=2)
    journal.set_hard_state(4, None)

    journal.set_unverified(0)
    journal.sync()

    assert journal.unverified_index == 0
    disk.crash()
    again = open_journal(disk)
    assert (again.unverified_index, again.last_index, again.hard_state) == (0, 10, (4, None))


def test_an_unverified_index_survives_the_segment_that_recorded_it() -> None:
    disk = given_journal()
    damage_entry(disk, 7)
    journal = open_journal(disk)
    append_many(journal, 100, term=2)
    journal.cut_before(100)
    journal.sync()
    disk.crash()

    assert open_journal(disk).unverified_index == UNKNOWN_INDEX


def test_damage_found_twice_leaves_the_replica_unverified() -> None:
    disk = given_journal()
    damage_entry(disk, 3)
    journal = open_journal(disk)
    append_many(journal, 2)
    journal.sync()
    journal.close()
    disk.damage(DIRECTORY / segment_name(2), HEADER_BYTES + RECORD_HEADER_BYTES, ROT)

    journal = open_journal(disk)

    assert (journal.last_index, journal.unverified_index) == (2, UNKNOWN_INDEX)


def test_a_rotten_tail_without_a_recent_mark_is_not_underestimated() -> None:
    """1. The mark reaches the disk at entry 7, of term 2. 2. A vote and entry 8 of term 3 are
    synced and acknowledged. 3. The power fails before the mark is written back, and the medium
    returns garbage from there on: nothing is left that speaks of entry 8 or term 3."""
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 7, term=2)
    journal.set_hard_state(2, "node-3")
    journal.sync()
    end = journal._end - address_of(1, 0)
    journal._writes._files.sync_mark()
    journal.set_hard_state(3, "node-2")
    append_many(journal, 1, term=3)
    journal.sync()
    disk.crash()
    disk.damage(DIRECTORY / segment_name(1), end, b"\xb6" * (4096 - end))

    journal = open_journal(disk)

    assert journal.recovery.outcome is Outcome.DAMAGED_TAIL
    assert (journal.last_index, journal.unverified_index) == (7, UNKNOWN_INDEX)
    assert journal.hard_state == (2, UNKNOWN_VOTE)


def test_a_member_that_lost_its_whole_directory_starts_unverified() -> None:
    journal = open_journal(given_disk(), unverified_if_new=UNKNOWN_INDEX)

    assert journal.recovery.outcome is Outcome.NEW
    assert journal.unverified_index == UNKNOWN_INDEX


def test_a_member_that_still_has_its_journal_is_not_unverified() -> None:
    assert open_journal(given_journal(), unverified_if_new=UNKNOWN_INDEX).unverified_index == 0


# What is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("other", [{"cluster_id": "other"}, {"node_id": "node-2"}, {"group_id": 8}])
def test_a_journal_of_another_node_is_refused_and_untouched(other: dict[str, str]) -> None:
    disk = given_journal()
    before = disk.image()

    with pytest.raises(WrongCluster, match="/data/journal/7 belongs to another"):
        open_journal(disk, **other)

    assert disk.image() == before


def given_segments() -> SimDisk:
    """Five segments."""
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 100)
    journal.sync()
    journal.close()
    assert len(disk.list_names(DIRECTORY)) == 6
    return disk


def test_a_missing_segment_is_refused_and_nothing_is_touched() -> None:
    disk = given_segments()
    disk.unlink(DIRECTORY / segment_name(3))

    check_nothing_is_touched(disk, JournalCorrupted, "000000000003.journal is missing: stop")


def test_a_missing_newest_segment_is_refused() -> None:
    disk = given_segments()
    disk.unlink(DIRECTORY / segment_name(5))

    check_nothing_is_touched(disk, JournalCorrupted, "000000000005.journal is missing: stop")


def test_missing_segments_altogether_are_refused() -> None:
    disk = given_segments()
    for sequence in range(1, 6):
        disk.unlink(DIRECTORY / segment_name(sequence))

    check_nothing_is_touched(disk, JournalCorrupted, "its segments are missing")


def test_damage_in_an_older_segment_is_refused_and_nothing_is_touched() -> None:
    disk = given_segments()
    disk.damage(DIRECTORY / segment_name(2), 1000, ROT)

    check_nothing_is_touched(disk, JournalCorrupted, "000000000002.journal is damaged")


def test_an_older_segment_whose_tail_turned_to_zeros_is_refused() -> None:
    disk = given_segments()
    disk.damage(DIRECTORY / segment_name(2), 2048, bytes(2048))

    check_nothing_is_touched(disk, JournalCorrupted, "000000000002.journal is damaged")


def test_a_damaged_segment_header_is_refused() -> None:
    disk = given_segments()
    disk.damage(DIRECTORY / segment_name(5), 40, ROT)

    check_nothing_is_touched(disk, JournalCorrupted, "the header of 000000000005.journal")


def test_a_segment_under_the_name_of_another_is_refused() -> None:
    disk = given_segments()
    disk.damage(DIRECTORY / segment_name(2), 0, disk.read(DIRECTORY / segment_name(3)))

    check_nothing_is_touched(disk, JournalCorrupted, "the header of 000000000002.journal")


def test_a_sound_record_in_the_wrong_place_is_not_believed() -> None:
    """Misdirected write: the bytes of entry 2 stand where entry 5 was."""
    disk = given_journal()
    data = disk.read(DIRECTORY / segment_name(1))
    moved = data[offset_of_entry(2) : offset_of_entry(3)]
    disk.damage(DIRECTORY / segment_name(1), offset_of_entry(5), moved)

    journal = open_journal(disk)

    assert (journal.recovery.outcome, journal.last_index) == (Outcome.DAMAGED_TAIL, 4)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (Kind.ENTRY, {"index": 12, "term": 1, "first_position": 11}),
        (Kind.ENTRY, {"index": 11, "term": 1, "first_position": 12}),
        (Kind.ENTRY, {"index": 11, "term": 0, "first_position": 11}),
        (Kind.TRUNCATE, {"index": 12, "term": 1, "first_position": 11}),
    ],
    ids=["index gap", "position gap", "falling term", "truncation beyond the end"],
)
def test_a_sound_record_that_cannot_follow_is_refused(kind: Kind, numbers: dict[str, int]) -> None:
    """Its checksum is right, so the medium is not to blame: entries are missing."""
    disk = given_journal()
    record = encode_record(address_of(1, offset_of_entry(11)), kind, **numbers)
    disk.damage(DIRECTORY / segment_name(1), offset_of_entry(11), record)

    check_nothing_is_touched(disk, JournalCorrupted, "follows entry 10")


def test_a_truncation_right_behind_the_last_entry_changes_nothing() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    journal.reset_to(10, 2, 30)
    append_many(journal, 1, term=2)
    journal.truncate_from(11)
    journal.sync()
    disk.crash()

    again = open_journal(disk)

    assert (again.base_index, again.last_index, again.last_position) == (10, 10, 30)


def test_a_journal_of_a_later_version_is_refused() -> None:
    disk = given_journal()
    disk.damage(DIRECTORY / segment_name(1), 8, b"\x03")

    check_nothing_is_touched(disk, RefusesToStart, "start the version that wrote it")


# Yesterday's journal ------------------------------------------------------------------------

GOLDEN = Path(__file__).parents[3] / "replay" / "logs" / "journal-v1"


def test_a_journal_of_format_1_stays_readable() -> None:
    """The files were written once, by tests/support/golden/journal.py, and never again."""
    disk = given_disk()
    disk.make_directory(DIRECTORY.parent)
    disk.make_directory(DIRECTORY)
    for source in sorted(GOLDEN.iterdir()):
        handle = disk.open(DIRECTORY / source.name, create=True)
        disk.pwrite(handle, source.read_bytes(), 0)

    journal = open_journal(disk)

    assert journal.recovery.outcome is Outcome.CLEAN
    assert (journal.first_index, journal.last_index, journal.last_position) == (11, 42, 1_032)
    assert (journal.base_index, journal.base_term, journal.base_position) == (10, 2, 1_000)
    assert journal.hard_state == (5, "node-3")
    assert journal.unverified_index == 0
    assert [entry.payload for entry in journal.entries(11, 42, 10**6)] == [
        payload_of(index) for index in range(11, 43)
    ]
    assert [journal.term_of(index) for index in (39, 40, 41, 42)] == [3, 4, 4, 4]


def test_opening_never_changes_what_a_journal_says() -> None:
    disk = given_segments()

    def content(journal: Journal) -> tuple[object, ...]:
        entries = journal.entries(journal.first_index, journal.last_index, 10**9)
        return journal.hard_state, journal.base_index, tuple(entries)

    first = content(open_journal(disk))

    assert content(open_journal(disk)) == first
