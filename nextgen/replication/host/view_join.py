"""Where a view and its log meet when a replica is opened."""

from __future__ import annotations

import logging
from pathlib import Path

from nextgen.kernel.errors import JournalCorrupted
from nextgen.replication.journal.journal import Journal
from nextgen.replication.ports import AppliedPoint, StateMachine
from nextgen.replication.snapshot.files import SnapshotFiles

_logger = logging.getLogger(__name__)


def join_view(
    journal: Journal,
    state_machine: StateMachine,
    files: SnapshotFiles,
    directory: Path,
    *,
    has_others: bool,
) -> AppliedPoint:
    """Make sure that the log goes on where the view ends, and return that point.

    A view that ends before its log begins, as one that was put aside and begun empty, is left as it
    is if ``has_others``: the replica votes and asks a leader for a snapshot, and keeps its log.

    Raises:
        JournalCorrupted: The view ends before the log begins, and there is nobody to ask.
    """
    applied = state_machine.applied()
    if applied.index < journal.base_index:
        newest = files.sound()
        if newest is not None and newest[1].index >= journal.base_index:
            applied = state_machine.install_snapshot(newest[0])
        elif has_others:
            _logger.warning("%s: the view is built again from a leader's snapshot", directory)
            return applied
        else:
            raise JournalCorrupted(
                f"{directory}: the view ends at entry {applied.index}, the journal begins at "
                f"{journal.base_index + 1}, and there is no other replica to get a snapshot from: "
                f"restore a backup into an empty cluster"
            )
    if applied.index > journal.last_index or journal.term_of(applied.index) != applied.term:
        # The journal lost its tail after the view had folded it, or a crash came between the
        # view, which got a snapshot, and the journal; what is folded is committed.
        configuration = journal.configuration_at(applied.index)
        journal.reset_to(applied.index, applied.term, applied.position, configuration)
        # Not flush: this may be a worker thread, and only the event loop is called back.
        journal.sync()
    return applied
