"""Every sync is needed: for each there is something that only it keeps.

A scenario does what a replica does, loses power, starts again and says whether what had been
promised is still true. It must be with the sync, and must not be without.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import nextgen.replication.journal.journal as journal_module
from nextgen.kernel.errors import JournalCorrupted
from nextgen.replication.journal.format import HEADER_BYTES, RECORD_HEADER_BYTES
from nextgen.replication.journal.journal import JournalBroken, JournalEntry
from nextgen.replication.journal.recovery import PREPARING_NAME, Outcome, segment_name
from nextgen.replication.journal.unverified import UNKNOWN_INDEX
from tests.support.simulated.disk import SimDisk
from tests.support.simulated.journals import (
    DIRECTORY,
    append_many,
    given_disk,
    open_journal,
)

Scenario = Callable[[SimDisk], bool]


def an_acknowledged_entry_is_there(disk: SimDisk) -> bool:
    journal = open_journal(disk)
    append_many(journal, 1)
    journal.sync()
    disk.crash()
    return open_journal(disk).last_index == 1


def a_vote_is_remembered(disk: SimDisk) -> bool:
    journal = open_journal(disk)
    journal.set_hard_state(1, "node-2")
    journal.sync()
    disk.crash()
    return open_journal(disk).hard_state == (1, "node-2")


def a_journal_that_was_just_begun_can_be_opened(disk: SimDisk) -> bool:
    open_journal(disk)
    disk.crash()
    return open_journal(disk).recovery.outcome in {Outcome.NEW, Outcome.CLEAN}


def a_cut_leaves_no_hole(disk: SimDisk) -> bool:
    """The last unlink reaches the disk before the first."""
    journal = open_journal(disk)
    append_many(journal, 100)
    journal.cut_before(100)
    journal.sync()
    disk.crash(keep=lambda what: what == f"unlink {segment_name(3)}")
    return open_journal(disk).last_index == 100


def damage_that_was_cleared_does_not_come_back(disk: SimDisk) -> bool:
    journal = open_journal(disk)
    append_many(journal, 10)
    journal.sync()
    journal.close()
    disk.damage(DIRECTORY / segment_name(1), HEADER_BYTES + RECORD_HEADER_BYTES, b"rot")
    open_journal(disk)
    disk.crash()
    return open_journal(disk).unverified_index == UNKNOWN_INDEX


def what_was_cut_does_not_come_back(disk: SimDisk) -> bool:
    """1. A record of entry 1 and one of a vote are cut short: the second arrives, the first
    does not. 2. Power comes back, the tail is cut. 3. Another entry 1, of the same length,
    is written, and again power fails: its sectors arrive, the zeros in the others do not.
    The vote behind it must not be there: it was never cast."""
    journal = open_journal(disk)
    disk.fail_sync("journal.batch", errno.ENOSPC)
    journal.append(1, b"x" * (512 - RECORD_HEADER_BYTES), 1)
    journal.set_hard_state(9, "node-9")
    journal.flush()
    disk.crash(keep=lambda what: what == f"sector 2 of {PREPARING_NAME}")
    journal = open_journal(disk)
    assert journal.recovery.outcome is Outcome.TORN_TAIL
    journal.append_entry(JournalEntry(1, 1, 1, 1, b"y" * (512 - RECORD_HEADER_BYTES)))
    disk.fail_sync("journal.batch", errno.ENOSPC)
    journal.flush()
    disk.crash(keep=lambda what: what == f"sector 1 of {PREPARING_NAME}")
    return open_journal(disk).hard_state == (0, None)


def damage_after_a_clean_stop_is_noticed(disk: SimDisk) -> bool:
    """A whole sector of acknowledged bytes turns to zeros while the machine is off."""
    journal = open_journal(disk)
    append_many(journal, 10)
    journal.sync()
    journal.close()
    disk.crash()
    disk.damage(DIRECTORY / segment_name(1), 1024, bytes(3072))
    return open_journal(disk).unverified_index == UNKNOWN_INDEX


def damage_is_remembered_while_it_is_repaired(disk: SimDisk) -> bool:
    """Power fails when the damaged tail is cleared and its memorial not yet written."""
    journal = open_journal(disk)
    append_many(journal, 10)
    journal.sync()
    disk.crash()
    disk.damage(DIRECTORY / segment_name(1), HEADER_BYTES + RECORD_HEADER_BYTES, b"rot")
    disk.fail_sync("journal.segment_header", errno.EIO)
    with pytest.raises(OSError, match="error"):
        open_journal(disk)
    disk.crash()
    return open_journal(disk).unverified_index == UNKNOWN_INDEX


def what_a_killed_process_wrote_is_durable_before_it_is_relied_upon(disk: SimDisk) -> bool:
    """1. A batch is written, and its sync fails. 2. The process is killed. 3. The next one
    reads the batch, from the system's memory. 4. Power fails: the bytes are there all the same,
    although the system took them for written since the sync failed."""
    journal = open_journal(disk)
    disk.fail_sync("journal.batch", errno.EIO)
    append_many(journal, 1)
    with pytest.raises(JournalBroken):
        journal.sync()
    disk.close_all()
    assert open_journal(disk).last_index == 1
    disk.crash()
    return open_journal(disk).last_index == 1


def a_segment_that_a_killed_process_began_keeps_its_name(disk: SimDisk) -> bool:
    """The process is killed between the name and its sync; the next one goes on in there."""
    journal = open_journal(disk)
    disk.fail_sync("journal.segment_name", errno.EIO)
    append_many(journal, 100)
    with pytest.raises(JournalBroken):
        journal.sync()
    disk.close_all()
    journal = open_journal(disk)
    append_many(journal, 1)
    journal.sync()
    last_index = journal.last_index
    disk.crash()
    return open_journal(disk).last_index == last_index


SCENARIOS = [
    ("journal.make_directory", an_acknowledged_entry_is_there),
    ("journal.segment_name", an_acknowledged_entry_is_there),
    ("journal.batch", an_acknowledged_entry_is_there),
    ("journal.batch", a_vote_is_remembered),
    ("journal.segment_header", a_journal_that_was_just_begun_can_be_opened),
    ("journal.drop_segment", a_cut_leaves_no_hole),
    ("journal.repair", damage_that_was_cleared_does_not_come_back),
    ("journal.repair", what_was_cut_does_not_come_back),
    ("journal.recovered", what_a_killed_process_wrote_is_durable_before_it_is_relied_upon),
    ("journal.recovered_name", a_segment_that_a_killed_process_began_keeps_its_name),
    ("journal.mark", damage_after_a_clean_stop_is_noticed),
    ("journal.mark", damage_is_remembered_while_it_is_repaired),
]


def holds(scenario: Scenario, disk: SimDisk) -> bool:
    try:
        return scenario(disk)
    except JournalCorrupted:
        return False


@pytest.mark.parametrize(
    ("label", "scenario"),
    SCENARIOS,
    ids=[f"without_{label}_not_{scenario.__name__}" for label, scenario in SCENARIOS],
)
def test_removing_a_sync_loses_what_it_keeps(label: str, scenario: Scenario) -> None:
    honest, lying = given_disk(), given_disk()
    lying.ignore_sync(label)

    assert holds(scenario, honest)
    assert honest.syncs[label] > 0
    assert not holds(scenario, lying)


def test_every_sync_of_the_journal_is_among_the_scenarios() -> None:
    package = Path(journal_module.__file__).parent
    labels = {
        label
        for source in package.glob("*.py")
        for label in re.findall(r'label="(journal\.\w+)"', source.read_text())
    }

    assert labels == {label for label, _ in SCENARIOS}
