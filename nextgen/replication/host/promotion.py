"""Makes a group of one out of the last replica that is left of it. For a stopped process.

What the lost replicas acknowledged behind the end of this log is gone. The group continues behind a
gap, so that no number of the lost entries is used again: with a term, and by it epochs, of the next
generation (``kernel.events.generations``), and positions that were never used. Readers are behind
the cut and begin with a snapshot.

The steps can be repeated after a crash. Until the last of them the journal names the old voters,
so that a replica that was promoted in part elects no leader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nextgen.kernel.errors import Refused, RefusesToStart
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.events.generations import POSITIONS_SKIPPED, first_term_of_next_generation
from nextgen.replication.host.view_join import join_view
from nextgen.replication.journal.journal import Journal
from nextgen.replication.journal.recovery import Outcome
from nextgen.replication.journal.worker import InlineRunner
from nextgen.replication.ports import AppliedPoint, Configuration, Entry, GroupId, NodeId
from nextgen.replication.protocol.entry_codec import decode_records
from nextgen.replication.snapshot.files import SnapshotFiles
from nextgen.replication.view.database import Upgrade
from nextgen.replication.view.store import ViewStore
from nextgen.storage.disk import DiskStorage


@dataclass(frozen=True, slots=True)
class Promotion:
    """The findings of a promotion, and the position at which the group continues."""

    voters: tuple[NodeId, ...]  # Of the configuration that held before; empty if the log has none.
    last_position: int  # The last event that is here.
    last_term: int
    was_damaged: bool  # This replica had lost a part of its own log.
    next_position: int
    term: int

    @property
    def record(self) -> Mapping[str, Any]:
        """The fields, to be stored."""
        return asdict(self)

    @property
    def may_be_missing(self) -> str:
        """One sentence on the possible loss, for the operator."""
        found = f"every event behind position {self.last_position} of the old log"
        if self.was_damaged:
            found += ", and any event before it: this replica had lost a part of its own log"
        return (
            f"{found}; events near that position that were never acknowledged may have become "
            f"part of it"
        )


def promote(
    data_directory: Path,
    group_id: GroupId,
    *,
    cluster_id: str,
    node_id: NodeId,
    lost: frozenset[NodeId],
    members: tuple[NodeId, ...],
    open_view: Callable[[Path], ViewStore],
    change: Upgrade | None = None,
) -> Promotion:
    """Promote this node's replica of ``group_id`` and return the findings. Blocks.

    ``lost`` are the voters that are gone for good, ``members`` those that the group began with.
    ``change`` alters the view's tables in the transaction that moves it to the next generation.
    The caller MUST hold the data directory's lock and have made sure that the lost voters are down.

    Raises:
        Refused: A voter is neither this one nor lost: it may have later entries, and a quorum may
            return.
        RefusesToStart: There is no replica here, or it is another node's, or damaged.
    """
    storage = DiskStorage()
    directory = data_directory / f"group-{group_id}"
    if not storage.is_directory(directory / "journal"):
        raise RefusesToStart(f"{directory} holds no replica: promote the node that has one")
    journal = Journal.open(
        storage,
        directory / "journal",
        cluster_id=cluster_id,
        group_id=group_id,
        node_id=node_id,
        runner=InlineRunner(),
    )
    try:
        if journal.recovery.outcome is Outcome.NEW:
            raise RefusesToStart(f"{directory} holds no replica: promote the node that has one")
        present = journal.configuration or Configuration(tuple(sorted(members)))
        _check_lost(present, node_id, lost)
        files = SnapshotFiles(storage, directory / "snapshots")
        files.prepare()
        view = open_view(directory / "view")
        try:
            return _promote(journal, files, view, directory, node_id, present, change)
        finally:
            view.close()
    finally:
        journal.close()


def _check_lost(present: Configuration, node_id: NodeId, lost: frozenset[NodeId]) -> None:
    others = [voter for voter in present.voters if voter != node_id]
    missing = [voter for voter in others if voter not in lost]
    if missing:
        raise Refused(
            RejectionCode.NOT_ALLOWED,
            f"{', '.join(missing)} of the voters {', '.join(present.voters)} are not "
            f"declared lost: start them, and the group continues once a majority is there",
        )
    if not others:
        raise Refused(RejectionCode.NOT_ALLOWED, f"{node_id} is the only voter: start it")


def _promote(
    journal: Journal,
    files: SnapshotFiles,
    view: ViewStore,
    directory: Path,
    node_id: NodeId,
    present: Configuration,
    change: Upgrade | None,
) -> Promotion:
    applied = join_view(journal, view, files, directory, has_others=False)
    for index in range(applied.index + 1, journal.last_index + 1):
        # All entries: each may have been acknowledged with the help of the lost replicas.
        entry = journal.entry(index)
        records = decode_records(entry.payload)
        view.apply([Entry(index, entry.term, entry.first_position, records)])
    term = first_term_of_next_generation(max(journal.hard_state[0], journal.last_term))
    found = Promotion(
        voters=present.voters,
        last_position=journal.last_position,
        last_term=journal.last_term,
        was_damaged=bool(journal.unverified_index),
        next_position=journal.last_position + POSITIONS_SKIPPED + 1,
        term=term,
    )
    # The index too: the cluster manager accepts only the report of the latest configuration.
    index = journal.last_index + POSITIONS_SKIPPED
    point = AppliedPoint(index, term, found.next_position - 1)
    # Its term first: until the last step this replica is one of several and elects no leader.
    journal.set_hard_state(term, None)
    journal.sync()
    view.begin_generation(point, change)
    files.remove_all()
    journal.set_unverified(0)
    journal.reset_to(
        point.index, point.term, point.position, Configuration((node_id,), (), point.index)
    )
    journal.sync()
    return found
