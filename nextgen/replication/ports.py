"""The promises of a Raft group to the component above it.

    propose ──▶ [ group commit ] ──▶ journal (fsync, majority) ──▶ committed ──▶ state machine
                                                   │                               (the view)
                                                   └──▶ event log, read by position

Three numbers, never swapped: ``index`` counts Raft entries, ``term`` counts elections, ``position``
counts *events*, densely from 1; every layer above uses positions. One entry carries many records.

One record has the events of one decided command, maybe none, and its outcome if it had a command
id. Nothing above this module may depend on the Raft library below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NewType, Protocol

# Part of this port: what ``read`` and ``pin`` raise.
from nextgen.kernel.errors import PositionCompacted as PositionCompacted
from nextgen.replication.statistics import ReplicaStatistics

NodeId = NewType("NodeId", str)
"""Name of a process in the mesh, for example ``shard-node-1``. Stable across restarts."""

GroupId = NewType("GroupId", int)
"""Number of a Raft group: the shard id, or ``CLUSTER_MANAGER_GROUP_ID``."""

CLUSTER_MANAGER_GROUP_ID = GroupId(0)


class Role(StrEnum):
    """The present role of a replica."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEARNER = "learner"  # Replicates and is not counted: on its way in, or out.
    NON_VOTER = "non_voter"  # Damaged journal: replicates, but neither votes nor campaigns.
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Record:
    """The part of the log that one decided command adds.

    ``payload`` is opaque to replication and must not be empty. ``events`` is the number of
    events inside, 0 for a recorded rejection.
    """

    payload: bytes
    events: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A committed Raft entry.

    The events of its records take the positions from ``first_position`` on, in order; an
    entry without events has the position that the next event will get.
    """

    index: int
    term: int
    first_position: int
    records: tuple[Record, ...]

    @property
    def next_position(self) -> int:
        return self.first_position + sum(record.events for record in self.records)


@dataclass(frozen=True, slots=True)
class Commit:
    """Where a proposed record landed: its entry, and the position of its first event.

    The times are ``time.monotonic()``'s in seconds, 0.0 where they are not known: a majority of
    followers may be faster than the leader's own disk.
    """

    index: int
    term: int
    first_position: int
    appended_at: float = field(default=0.0, compare=False)  # The entry, to the leader's log.
    durable_at: float = field(default=0.0, compare=False)  # On the leader's own disk.


@dataclass(frozen=True, slots=True)
class AppliedPoint:
    """How far a view has folded the log. ``position`` is the last folded event, 0 for none.

    ``term`` is the term of the entry at ``index``: a log that restarts from a snapshot needs
    it to check what follows.
    """

    index: int
    term: int
    position: int


@dataclass(frozen=True, slots=True)
class RoleChange:
    """A change of this replica's role or of its leader.

    ``role`` is LEADER only once this replica may decide: an entry of its own term is
    committed and its view has applied it. ``leader_id`` is the best known leader or None.
    """

    term: int
    role: Role
    leader_id: NodeId | None


@dataclass(frozen=True, slots=True)
class Configuration:
    """The members of a group. Voters count for majorities; learners only replicate.

    ``index`` is the entry that made it, 0 for the one the group began with. A configuration
    holds from the moment its entry is appended, and falls with it if the entry is cut off
    (Raft thesis, 4.1). Both tuples are sorted and share no node.
    """

    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...] = ()
    index: int = 0


class ChangeKind(StrEnum):
    """The steps of a membership change. Each changes at most one voter."""

    ADD_LEARNER = "add_learner"
    PROMOTE = "promote"  # A learner that has caught up becomes a voter.
    REMOVE = "remove"  # A learner or a voter, but not the last voter.


@dataclass(frozen=True, slots=True)
class MemberChange:
    """One step of a membership change."""

    kind: ChangeKind
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class MemberProgress:
    """A leader's knowledge of another member."""

    node_id: NodeId
    is_connected: bool
    match_index: int  # Durable there and equal to the leader's log.
    applied_index: int
    gets_snapshot: bool


@dataclass(frozen=True, slots=True)
class ViewDigest:
    """A view's content as a number, at a position where every replica takes it.

    Equal logs give equal digests whatever batches they were folded in.
    """

    index: int
    position: int
    digest: int
    scheme: int = 0  # The content and form of the hash: different schemes cannot be compared.


@dataclass(frozen=True, slots=True)
class LogStatus:
    """One line about a replica, for status pages and metrics."""

    group_id: GroupId
    role: Role
    term: int
    leader_id: NodeId | None
    members: tuple[NodeId, ...]
    last_index: int
    commit_index: int
    commit_position: int
    applied: AppliedPoint
    first_position: int  # The oldest position that can still be read.
    view_lag_ms: float  # Age of the oldest committed entry that this view has not applied.
    journal_bytes: int
    elections: int  # Elections this replica has won since it started.
    disk_trouble: str = ""  # Why its disk takes no writes, "" when it does.
    learners: tuple[NodeId, ...] = ()
    configuration_index: int = 0
    progress: tuple[MemberProgress, ...] = ()  # Of the others, while this replica leads.
    digest: ViewDigest | None = None  # The newest one this replica has taken.
    divergence: str = ""  # The replica whose view is known to differ, "" without one.
    log_pins: int = 0  # Readers that keep a part of the log; see ``ReplicatedLog.pin``.
    pinned_bytes: int = 0  # Log that is kept for pins alone.
    log_readers: int = 0  # Pins with a name, which survive a restart.
    readers_expired: int = 0  # Named readers that did not renew, since the replica was opened.
    snapshots: int = 0  # Written for followers since the replica was opened.
    snapshots_installed: int = 0  # Snapshots that a leader sent.
    snapshot_ms: float = 0.0  # What writing the newest of them took.
    records_waiting: int = 0  # Proposed here and not yet in an entry.
    entries_in_flight: int = 0  # Appended by this leader and not yet committed.
    statistics: ReplicaStatistics | None = None  # Counts since the replica was opened.
    pins_broken: int = 0  # Of readers, because together they kept too much, or the log was cut.


@dataclass(frozen=True, slots=True)
class LogReader:
    """A named reader, as one replica knows it; see ``ReplicatedLog.pin_reader``."""

    reader_id: str
    position: int  # Committed entries from here on are kept.
    expires_in_ms: int
    is_broken: bool  # The log was cut in spite of it.


class StateMachine(Protocol):
    """The fold over one group's log. Called by the log; never calls it.

    ``apply`` and ``write_snapshot`` run on worker threads, never two ``apply`` at a time.
    An exception from ``apply`` other than a full disk stops the replica: a view that cannot
    follow its log must not be served.
    """

    def applied(self) -> AppliedPoint:
        """Return the point that is stored in the same transaction as the view itself."""
        ...

    def apply(self, entries: Sequence[Entry]) -> None:
        """Fold ``entries``, in order, and store the new applied point, in one transaction.

        Raises:
            OSError: The disk is full. Nothing was folded; the log calls again later.
        """
        ...

    def make_durable(self) -> AppliedPoint:
        """Force the applied state to disk and return its point: the log may be compacted to it."""
        ...

    def digest(self) -> ViewDigest | None:
        """Return the digest taken at the newest digest point, None before the first.

        Stored in the same transaction as the view. The log cuts its batches so that each
        digest point (``DIGEST_POSITIONS``) is the end of one.
        """
        ...

    def write_snapshot(self, path: Path) -> AppliedPoint:
        """Write a consistent copy to ``path`` (fsynced) while ``apply`` goes on."""
        ...

    def install_snapshot(self, path: Path) -> AppliedPoint:
        """Replace the view by the copy at ``path``."""
        ...

    def quarantine(self) -> None:
        """Put the view aside and begin an empty one, applied to (0, 0, 0)."""
        ...

    def close(self) -> None: ...


class ReplicatedLog(Protocol):
    """One replica of one Raft group. Every method is called on the event loop."""

    @property
    def status(self) -> LogStatus: ...

    @property
    def is_leader(self) -> bool:
        """True while ``propose`` may be called: see ``RoleChange.role``."""
        ...

    @property
    def commit_position(self) -> int:
        """The last event that this replica knows as committed, 0 for none."""
        ...

    @property
    def applied_point(self) -> AppliedPoint:
        """How far the view is. Cheap, unlike the whole ``status``."""
        ...

    @property
    def hears_leader(self) -> bool:
        """True while this replica leads, or heard its leader within the election timeout."""
        ...

    @property
    def event_level(self) -> int:
        """The highest level of events that every member is known to know; see
        ``nextgen.kernel.events.levels``.

        Members are the voters and learners of the configuration in force, this process included. A
        member that is away counts with its last report, or with ``EVENT_LEVEL_UNREPORTED``. The
        caller of ``propose`` MUST NOT write an event of a higher level: a member that does not know
        it would stop for good.
        """
        ...

    def behind_event_level(self, level: int) -> Sequence[NodeId]:
        """Return the members that are not known to know events of ``level``, sorted."""
        ...

    def propose(self, record: Record) -> asyncio.Future[Commit]:
        """Queue ``record`` for the log and return a future of its commit; never blocks.

        Records get their positions in the order of the calls. The future resolves when the
        record is fsynced on a majority, whether or not any view has applied it.

        Raises:
            NotLeader: At once; nothing was queued.
            Overloaded: At once; the queue is at its limit (views lag, or the disk is slow).
            ProposalLost: From the future: leadership moved first, the record may or may not
                survive. Indefinite.
        """
        ...

    async def read_index(self, *, asked_at: float | None = None) -> int:
        """Confirm leadership with a majority and return an index to wait for.

        A read of the view after ``wait_applied(index)`` is linearizable. Concurrent calls
        share a round. No log entry is written. ``asked_at`` is when the question came, by the event
        loop's clock, if that was earlier: a heartbeat since then that a majority has answered
        confirms leadership without a round.

        Raises:
            NotLeader: Leadership could not be confirmed.
        """
        ...

    async def wait_applied(self, index: int) -> None:
        """Return once the view has applied entry ``index``."""
        ...

    async def wait_position(self, position: int) -> None:
        """Return once the view has applied the event at ``position`` (any replica)."""
        ...

    def read(self, from_position: int, *, events_max: int, bytes_max: int) -> Sequence[Entry]:
        """Return committed entries in order, the first one holding ``from_position``.

        Whole entries: the first may begin before ``from_position``. At least one entry if
        any is committed there; otherwise stops before exceeding a limit. Empty when
        ``from_position`` is beyond the last committed event.

        Raises:
            PositionCompacted: The log was cut there.
        """
        ...

    def on_commit(self, listener: Callable[[Sequence[Entry]], None]) -> Callable[[], None]:
        """Call ``listener`` with each run of newly committed entries, in order, on the loop.

        Returns a function that unsubscribes. An exception in a listener is logged and
        affects no other.
        """
        ...

    def on_commit_positions(self, listener: Callable[[int, int], None]) -> Callable[[], None]:
        """Call ``listener`` with the first and last position of each run of newly committed
        entries, which are not read for it; the last is before the first if they hold no event.

        Otherwise as ``on_commit``.
        """
        ...

    def expedite_commits(self) -> Callable[[], None]:
        """Have the leader send commits to this replica at once, not with its next message, which
        may be a heartbeat.

        Each commit may cost one more message, for as long as a reader follows the log here.
        Returns a function that ends it.
        """
        ...

    def on_role_change(self, listener: Callable[[RoleChange], None]) -> Callable[[], None]:
        """Call ``listener`` with the present role at once, then with each change."""
        ...

    async def transfer_leadership(self, target: NodeId) -> None:
        """Hand leadership to ``target`` once it has caught up; return when it has stepped down.

        Raises:
            NotLeader: This replica does not lead.
            TransferFailed: ``target`` did not take over in time; this replica still leads.
        """
        ...

    async def change_members(self, change: MemberChange) -> Configuration:
        """Carry out one step and return the configuration it made, once that is committed.

        A step that has been made already is answered with the present configuration. A leader
        that removes itself hands over when the removal is committed.

        Raises:
            NotLeader: At once; nothing changed.
            Refused: Another change is under way, the learner to promote has not caught up,
                the last voter would go, or a member that would stay is not known to know
                ``CONFIGURATION_LEVEL``. Nothing changed.
            ProposalLost: Leadership moved first; the change may or may not survive.
        """
        ...

    def pin(self, name: str, position: int) -> LogPin:
        """Keep the committed entries from ``position`` on readable until the pin is released.

        Pins are soft state: they end with the process. When the log kept for pins would exceed its
        limit, the oldest end first; their readers then get ``PositionCompacted``.

        Raises:
            PositionCompacted: The position is compacted already.
            Overloaded: There are too many pins.
        """
        ...

    async def pin_reader(self, reader_id: str, position: int, ttl_ms: int) -> None:
        """Pin under a name: on disk when this returns, over restarts, until ``ttl_ms`` after the
        last call for this name, or after the restart. ``ttl_ms`` 0 releases the pin.

        A position before the pinned one renews the time only.

        Raises:
            PositionCompacted: The position is compacted already; a pin of this name is gone too.
            Overloaded: There are too many pins, or named readers.
            InvalidRequest: Name, position or time are not within their bounds.
            Unavailable: The disk refuses; the pin ends with the process.
        """
        ...

    def readers(self) -> Sequence[LogReader]:
        """Return the named readers of this replica, by name."""
        ...

    async def compact(self) -> AppliedPoint:
        """Make the view durable, cut the log behind it, and return the durable point."""
        ...

    async def stop(self) -> None: ...


class LogPin(Protocol):
    """A reader's hold on the log; see ``ReplicatedLog.pin``."""

    @property
    def is_broken(self) -> bool:
        """True once the log was cut in spite of the pin, to bound the disk."""
        ...

    def advance(self, position: int) -> None:
        """Unpin everything before ``position``; an earlier position than before is ignored."""
        ...

    def release(self) -> None: ...
