"""Which configuration holds is known again after every restart, whatever happened to the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nextgen.kernel.errors import JournalCorrupted
from nextgen.replication.journal.format import (
    HEADER_BYTES,
    RECORD_HEADER_BYTES,
    decode_segment_header,
    segment_format_version,
)
from nextgen.replication.journal.journal import Journal
from nextgen.replication.journal.recovery import MARK_NAME, Outcome, segment_name
from nextgen.replication.ports import Configuration, NodeId
from nextgen.replication.protocol.membership import encode_configuration
from tests.support.simulated.disk import SimDisk
from tests.support.simulated.journals import DIRECTORY, append_many, given_disk, open_journal

GOLDEN = Path(__file__).parents[3] / "replay" / "logs" / "journal-v2"


def configuration(index: int, *voters: int, learner: int | None = None) -> Configuration:
    learners = () if learner is None else (NodeId(f"node-{learner}"),)
    return Configuration(tuple(NodeId(f"node-{voter}") for voter in voters), learners, index)


def append_configuration(
    journal: Journal, *voters: int, learner: int | None = None, term: int = 1
) -> Configuration:
    made = configuration(journal.last_index + 1, *voters, learner=learner)
    journal.append(term, encode_configuration(made), 0)
    return made


def after_a_crash(disk: SimDisk, journal: Journal) -> Journal:
    journal.sync()
    disk.crash()
    return open_journal(disk)


def last_segment(disk: SimDisk) -> Path:
    names = [name for name in disk.list_names(DIRECTORY) if name.endswith(".journal")]
    return DIRECTORY / names[-1]


# What holds -----------------------------------------------------------------------------------


def test_a_log_that_never_said_who_its_members_are_says_nothing_and_stays_version_1() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 40)
    journal.truncate_from(30)
    journal.reset_to(50, 2, 100)

    again = after_a_crash(disk, journal)

    assert again.configuration is None
    names = [name for name in disk.list_names(DIRECTORY) if name.endswith(".journal")]
    assert {segment_format_version(disk.read(DIRECTORY / name)) for name in names} == {1}


def test_a_configuration_holds_from_its_append_on_and_is_the_same_object_until_the_next() -> None:
    journal = open_journal(given_disk())
    append_many(journal, 2)

    first = append_configuration(journal, 1, 2, learner=3)
    held = journal.configuration
    append_many(journal, 1)

    assert held == first
    assert journal.configuration is held
    assert journal.configuration_at(2) is None
    assert journal.configuration_at(3) == first


def test_a_configuration_that_is_cut_off_gives_way_to_the_one_before() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    first = append_configuration(journal, 1, 2, learner=3)
    append_many(journal, 3)
    second = append_configuration(journal, 1, 2, 3)
    append_many(journal, 3)

    journal.truncate_from(second.index + 1)
    assert journal.configuration == second
    journal.truncate_from(second.index)

    assert journal.configuration == first
    assert after_a_crash(disk, journal).configuration == first


def test_a_program_that_reads_version_1_only_refuses_a_log_with_configurations() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 2)

    append_configuration(journal, 1, 2)
    journal.sync()

    assert segment_format_version(disk.read(DIRECTORY / segment_name(1))) == 1
    assert segment_format_version(disk.read(last_segment(disk))) == 2


def test_it_is_known_after_the_segments_that_hold_its_entry_are_gone() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    held = append_configuration(journal, 1, 2, learner=3)
    append_many(journal, 80)

    journal.cut_before(80)

    assert journal.first_index > held.index
    assert journal.configuration == held
    again = after_a_crash(disk, journal)
    assert again.configuration == held
    assert again.configuration_at(again.base_index) == held


def test_one_that_was_cut_off_behind_a_gone_segment_does_not_come_back() -> None:
    """Its entry was in a segment that is gone, the record that voids it is in the next one."""
    disk = given_disk()
    journal = open_journal(disk)
    first = append_configuration(journal, 1, 2)
    append_many(journal, 20)
    second = append_configuration(journal, 1, 2, 3)
    append_many(journal, 25)
    journal.truncate_from(second.index)
    append_many(journal, 60, term=2)

    journal.cut_before(second.index + 1)
    journal.sync()
    header = decode_segment_header(disk.read(DIRECTORY / min(disk.list_names(DIRECTORY))))
    assert header is not None
    assert header.configuration == encode_configuration(second)

    assert after_a_crash(disk, journal).configuration == first


@pytest.mark.parametrize("known", [configuration(48, 1, 2, 3), None])
def test_a_log_that_begins_behind_a_snapshot_has_the_snapshots(known: Configuration | None) -> None:
    disk = given_disk()
    journal = open_journal(disk)
    append_configuration(journal, 1, 2)
    append_many(journal, 3)

    journal.reset_to(50, 2, 100, known)

    assert journal.configuration == known
    again = after_a_crash(disk, journal)
    assert again.configuration == known
    append_many(again, 100, term=2)
    assert after_a_crash(disk, again).configuration == known


def test_what_was_learned_of_an_entry_is_known_again() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 10)
    learned = configuration(4, 1, 2)

    journal.learn_configuration(learned, index=8)

    assert journal.configuration == learned
    assert after_a_crash(disk, journal).configuration == learned


def test_that_the_members_never_changed_can_be_learned_too() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    append_configuration(journal, 1, 2)
    append_many(journal, 10)

    journal.learn_configuration(None, index=20)

    assert journal.configuration is None
    assert after_a_crash(disk, journal).configuration is None


def test_to_learn_what_is_known_writes_nothing() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    held = append_configuration(journal, 1, 2)
    journal.sync()
    before = disk.image()

    journal.learn_configuration(held, index=1)
    journal.sync()

    assert disk.image() == before


# Damage ----------------------------------------------------------------------------------------


def given_two_configurations() -> tuple[SimDisk, Configuration, Configuration]:
    disk = given_disk()
    journal = open_journal(disk)
    first = append_configuration(journal, 1, 2, learner=3)
    append_many(journal, 2)
    journal.sync()
    second = append_configuration(journal, 1, 2, 3)
    append_many(journal, 2)
    journal.sync()
    journal.close()
    return disk, first, second


def place_of(disk: SimDisk, wanted: Configuration) -> tuple[Path, int]:
    """Return where the payload of its entry stands."""
    path = last_segment(disk)
    return path, disk.read(path).rindex(encode_configuration(wanted))


def test_a_torn_tail_takes_its_configuration_along() -> None:
    disk, first, second = given_two_configurations()
    disk.damage(DIRECTORY / MARK_NAME, 0, bytes(512))
    path, at = place_of(disk, second)
    record = at - RECORD_HEADER_BYTES
    disk.damage(path, record, bytes(len(disk.read(path)) - record))

    journal = open_journal(disk)

    assert journal.recovery.outcome is Outcome.CLEAN
    assert journal.configuration == first


def test_damage_behind_a_configuration_keeps_it_and_leaves_the_replica_unverified() -> None:
    disk, first, second = given_two_configurations()
    path, at = place_of(disk, second)
    disk.damage(path, at + 20, b"\xff")

    journal = open_journal(disk)

    assert journal.recovery.outcome is Outcome.DAMAGED_TAIL
    assert journal.unverified_index >= second.index
    assert journal.configuration == first
    assert open_journal(disk).configuration == first


def test_a_segment_whose_configuration_is_damaged_is_refused() -> None:
    disk = given_disk()
    journal = open_journal(disk)
    append_configuration(journal, 1, 2)
    append_many(journal, 80)
    journal.cut_before(80)
    journal.sync()
    journal.close()
    disk.damage(last_segment(disk), HEADER_BYTES + RECORD_HEADER_BYTES + 3, b"\xff")
    before = disk.image()

    with pytest.raises(JournalCorrupted, match="header"):
        open_journal(disk)
    assert disk.image() == before


# Yesterday's journal ----------------------------------------------------------------------------


def test_a_journal_of_format_2_stays_readable(
    golden_disk: Callable[[Path], SimDisk],
) -> None:
    """The files were written once, by tests/support/golden/journal.py, and never again."""
    disk = golden_disk(GOLDEN)

    journal = open_journal(disk)

    assert journal.recovery.outcome is Outcome.CLEAN
    assert (journal.base_index, journal.last_index, journal.hard_state) == (10, 58, (5, "node-3"))
    assert journal.configuration_at(30) == configuration(8, 1, 2, 3)
    assert journal.configuration_at(49) == configuration(31, 1, 2, 3, learner=4)
    learned = Configuration(
        (NodeId("node-1"), NodeId("node-2")), (NodeId("node-3"), NodeId("node-4")), 50
    )
    assert journal.configuration == learned


@pytest.fixture
def golden_disk() -> Callable[[Path], SimDisk]:
    def load(directory: Path) -> SimDisk:
        disk = given_disk()
        disk.make_directory(DIRECTORY.parent)
        disk.make_directory(DIRECTORY)
        for source in sorted(directory.iterdir()):
            handle = disk.open(DIRECTORY / source.name, create=True)
            disk.pwrite(handle, source.read_bytes(), 0)
        return disk

    return load
