"""Where a view and its log meet when a replica is opened."""

from __future__ import annotations

from pathlib import Path

from nextgen.kernel.errors import JournalCorrupted
from nextgen.replication.journal.journal import Journal
from nextgen.replication.ports import AppliedPoint, StateMachine
from nextgen.replication.snapshot.files import SnapshotFiles


def join_view(
    journal: Journal, state_machine: StateMachine, files: SnapshotFiles, directory: Path
) -> AppliedPoint:
    """Make sure that the log goes on where the view ends, and return that point.

    Raises:
        JournalCorrupted: The view ends before the log begins and no snapshot fills the gap.
    """
    applied = state_machine.applied()
    if applied.index < journal.base_index:
        newest = files.sound()
        if newest is None or newest[1].index < journal.base_index:
            raise JournalCorrupted(
                f"{directory}: the view ends at entry {applied.index}, the journal begins at "
                f"{journal.base_index + 1} and there is no snapshot in between: move this "
                f"directory away and start this node again; the replica is rebuilt from the others"
            )
        applied = state_machine.install_snapshot(newest[0])
    if applied.index > journal.last_index or journal.term_of(applied.index) != applied.term:
        # The journal lost its tail after the view had folded it, or a crash came between the
        # view, which got a snapshot, and the journal; what is folded is committed.
        configuration = journal.configuration_at(applied.index)
        journal.reset_to(applied.index, applied.term, applied.position, configuration)
        # Not flush: this may be a worker thread, and only the event loop is called back.
        journal.sync()
    return applied
