"""The engine of one replica: messages in, messages out, entries committed and applied.

    message, timer, proposal ──▶ kick ──▶ run, once per turn of the loop:
                                            commit what a majority has on disk
                                            fill entries from the queue
                                            send each follower what it lacks
                                            let the view follow

Nothing polls. Heartbeats come from the host's timer, elections from ``Election``. An error
that must not happen (``LogDiverged``, an assertion) stops this replica and no other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Protocol

from nextgen.kernel.errors import NotLeader, Overloaded
from nextgen.replication.applier import Applier
from nextgen.replication.config import RaftConfig
from nextgen.replication.disk_room import DiskRoom
from nextgen.replication.election import Election
from nextgen.replication.following import Following
from nextgen.replication.journal import Journal
from nextgen.replication.leadership import Leadership
from nextgen.replication.mesh_frames import Message, RemoteProtocolError
from nextgen.replication.ports import (
    AppliedPoint,
    Commit,
    Entry,
    GroupId,
    NodeId,
    Record,
    Role,
    RoleChange,
    StateMachine,
)
from nextgen.replication.pysyncobj_overrides import HardenedSyncObj
from nextgen.replication.quorum import majority_of, next_commit_index
from nextgen.replication.raft_messages import check_message
from nextgen.replication.replicator import Replicator
from nextgen.replication.statistics import ReplicaStatistics
from nextgen.replication.sync_watch import SyncWatch

COMMIT_NOTICE_S = 0.01
"""Until followers are told of a commit that no further entry carries to them."""


class Link(Protocol):
    """The way to the peers."""

    def send(self, node_id: NodeId, channel: int, message: Message) -> bool: ...
    def is_connected(self, node_id: NodeId) -> bool: ...


class ReplicaOwner(Protocol):
    """What the engine tells whoever stands above it. All on the loop."""

    def committed(self, first: int, last: int, known: Mapping[int, Entry]) -> None:
        """Entries ``first .. last`` are committed; ``known`` has those decoded already."""
        ...

    def applied(self, point: AppliedPoint) -> None: ...
    def role_may_have_changed(self) -> None: ...
    def snapshot_wanted(self, follower: NodeId) -> None: ...
    def snapshot_message(self, kind: str, sender: NodeId, message: Message) -> None: ...
    def peer_lost(self, node_id: NodeId) -> None: ...
    def broken(self, error: Exception) -> None: ...


class RaftReplica:
    """See the module. Opened by ``start``, ended by ``stop``."""

    def __init__(
        self,
        *,
        group_id: GroupId,
        node_id: NodeId,
        members: Sequence[NodeId],
        journal: Journal,
        state_machine: StateMachine,
        applied: AppliedPoint,
        link: Link,
        config: RaftConfig,
        executor: Executor,
        random_source: random.Random,
        owner: ReplicaOwner,
    ) -> None:
        self.group_id = group_id
        self.node_id = node_id
        self.members = tuple(members)
        self.others = tuple(member for member in members if member != node_id)
        self.journal = journal
        self.config = config
        self.statistics = ReplicaStatistics()
        self.commit_index = applied.index
        self.commit_position = applied.position
        self.leadership: Leadership | None = None
        self.stopped = False
        self.installing = False
        self._link = link
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._kicked = False
        self._sync_watch = SyncWatch(journal, self.statistics)
        self._commit_notice: asyncio.TimerHandle | None = None
        self.core = HardenedSyncObj(node_id, members, journal, self)
        self.applier = Applier(
            journal,
            state_machine,
            applied=applied,
            executor=executor,
            retry_ms=config.apply_retry_ms,
            on_applied=self._applied,
            on_broken=owner.broken,
        )
        self.election = Election(
            self.core,
            group_id=group_id,
            node_id=node_id,
            members=members,
            config=config,
            random_source=random_source,
            log_end=lambda: (journal.last_index, journal.last_term),
            send=self.send,
            may_campaign=self._may_campaign,
        )
        self.disk = DiskRoom(group_id, journal, self.applier)
        self._following = Following(self, self._sync_watch)
        self._handlers: dict[str, Callable[[NodeId, Message], None]] = {
            "pre_vote": self._on_pre_vote,
            "pre_vote_answer": self.election.on_pre_vote_answer,
            "request_vote": self._on_request_vote,
            "response_vote": self.core.vote_received,
            "append": self._following.on_append,
            "append_answer": self._on_append_answer,
            "timeout_now": self._on_timeout_now,
        }

    def __repr__(self) -> str:
        return (
            f"<RaftReplica group={self.group_id} node={self.node_id} role={self.role} "
            f"term={self.core.term} last={self.journal.last_index} commit={self.commit_index} "
            f"applied={self.applier.applied.index}>"
        )

    def start(self) -> None:
        for member in self.others:
            if self._link.is_connected(member):
                self.core.note_connected(member)
        self.election.start()
        self._owner.role_may_have_changed()

    def abandon(self) -> None:
        """End at once, whatever is under way: see ``PySyncObjHost.abandon``."""
        self._end()
        self.applier.abandon()

    async def stop(self) -> None:
        """End every timer, fail what waits, and let the batch under way be applied."""
        self._end()
        await self.applier.stop()

    def _end(self) -> None:
        self.stopped = True
        self.election.stop()
        if self._commit_notice is not None:
            self._commit_notice.cancel()
        self._end_leadership("the replica stopped")

    # What it is -------------------------------------------------------------------------------

    @property
    def is_ready_leader(self) -> bool:
        """True once an entry of this term is committed and this replica's view has it."""
        leadership = self.leadership
        return (
            leadership is not None
            and self.core.leads
            and not self.stopped
            and self.commit_index >= leadership.first_index
            and self.applier.applied.index >= leadership.first_index
        )

    @property
    def role(self) -> Role:
        if self.stopped:
            return Role.STOPPED
        if self.journal.doubt_index:
            return Role.NON_VOTER
        if self.is_ready_leader:
            return Role.LEADER
        if self.core.leads or self.core.campaigns:
            return Role.CANDIDATE
        return Role.FOLLOWER

    @property
    def role_change(self) -> RoleChange:
        leader_id = None if self.stopped else self.core.leader_id
        return RoleChange(self.core.term, self.role, leader_id)

    def not_leader(self) -> NotLeader:
        leader_id = self.core.leader_id
        return NotLeader(self.group_id, None if leader_id == self.node_id else leader_id)

    # What it is asked to do -------------------------------------------------------------------

    def propose(self, record: Record) -> asyncio.Future[Commit]:
        if not self.is_ready_leader or self.leadership is None:
            raise self.not_leader()
        self.disk.check(self.commit_position)
        future = self.leadership.commits.propose(record)
        self.kick()
        return future

    def ask_read_index(self) -> asyncio.Future[int]:
        if not self.is_ready_leader or self.leadership is None:
            raise self.not_leader()
        future = self.leadership.reads.ask(self.commit_index)
        self.kick()
        return future

    def kick(self) -> None:
        """Run at the end of this turn of the loop, once."""
        if not self._kicked and not self.stopped:
            self._kicked = True
            self._loop.call_soon(self._run_guarded)

    def heartbeat(self, late_ms: float) -> None:
        """Called every ``heartbeat_ms``; ``late_ms`` is how late the loop was."""
        leadership = self.leadership
        if self.stopped or leadership is None or not self.others:
            return
        is_stuck = max(late_ms, self._sync_watch.age_ms) > self.config.stall_ms_max
        silent_ms = (self._loop.time() - leadership.replicator.majority_heard_at()) * 1000
        if silent_ms > self.config.leader_contact_ms_max:
            self.step_down("no majority was heard")
        elif self.disk.should_hand_over(leadership.replicator, self.commit_index, is_stuck):
            self._retire(leadership)
        else:
            leadership.replicator.send_heartbeats(self.commit_index, leadership.reads.round)

    def step_down(self, why: str) -> None:
        """Stop leading at once, in the same term."""
        if self.leadership is not None:
            self._end_leadership(why)
        self.core.step_down(self.core.term)
        self._owner.role_may_have_changed()

    def send(self, node_id: NodeId, message: Message) -> bool:
        return self._link.send(node_id, self.group_id, message)

    # From the mesh ----------------------------------------------------------------------------

    def on_message(self, sender: NodeId, message: Message) -> None:
        kind = check_message(message)
        if self.stopped or sender not in self.others:
            return
        try:
            handler = self._handlers.get(kind)
            if handler is None:
                self._owner.snapshot_message(kind, sender, message)
            else:
                handler(sender, message)
                self._owner.role_may_have_changed()
        except RemoteProtocolError:
            raise
        except Exception as error:
            self._owner.broken(error)

    def on_peer_connected(self, node_id: NodeId) -> None:
        if node_id not in self.others or self.stopped:
            return
        self.core.note_connected(node_id)
        if self.leadership is not None:
            self.leadership.replicator.connected(node_id)
            self.kick()

    def on_peer_disconnected(self, node_id: NodeId) -> None:
        if node_id not in self.others or self.stopped:
            return
        self.core.note_disconnected(node_id)
        if self.leadership is not None:
            self.leadership.replicator.disconnected(node_id)
        self._owner.peer_lost(node_id)

    def on_peer_unreachable(self, node_id: NodeId) -> None:
        if node_id in self.others and not self.stopped:
            self.election.on_peer_unreachable(node_id)

    # From the library -------------------------------------------------------------------------

    def send_when_durable(self, node_id: NodeId, message: Message) -> None:
        def send() -> None:
            if not self.stopped:
                self.send(node_id, message)

        self.journal.when_durable(send)

    def leadership_won(self, first_index: int) -> None:
        replicator = Replicator(
            self.journal,
            term=self.core.term,
            followers=self.others,
            clock=self._loop.time,
            send=self.send,
            is_connected=self._link.is_connected,
            start_snapshot=self._owner.snapshot_wanted,
        )
        self.leadership = Leadership(
            self.group_id,
            term=self.core.term,
            first_index=first_index,
            replicator=replicator,
            entries_in_flight_max=self.config.entries_in_flight_max,
        )
        self.statistics.elections += 1
        self.statistics.entries += 1
        self._sync_watch.changed()
        self.journal.when_durable(self.kick)
        self.kick()
        self._owner.role_may_have_changed()

    def leadership_lost(self) -> None:
        self._end_leadership("leadership moved")

    # Snapshots --------------------------------------------------------------------------------

    def adopt_snapshot(self, point: AppliedPoint) -> None:
        """Go on behind a snapshot that the view has installed."""
        journal = self.journal
        inside = journal.base_index <= point.index <= journal.last_index
        if not inside or journal.term_of(point.index) != point.term:
            # What lies behind the snapshot here was never acknowledged as part of this log.
            journal.reset_to(point.index, point.term, point.position)
            self._following.forget_behind(point.index)
        if point.index > self.commit_index:
            self.commit_index = point.index
            self.commit_position = point.position
        self.statistics.snapshots_installed += 1
        self.applier.resume_from(point)

    # Voting -----------------------------------------------------------------------------------

    def _on_pre_vote(self, sender: NodeId, message: Message) -> None:
        if not self.journal.doubt_index:
            self.election.on_pre_vote(sender, message)

    def _on_request_vote(self, sender: NodeId, message: Message) -> None:
        if self.journal.doubt_index:
            return
        if not message["transfer"] and (self.core.leads or self.election.is_leader_alive):
            return
        if self.core.vote_requested(sender, message):
            self.election.voted()

    def _on_timeout_now(self, sender: NodeId, message: Message) -> None:
        if message["term"] == self.core.term and sender == self.core.leader_id:
            self.election.campaign_for_transfer()

    # Leading ----------------------------------------------------------------------------------

    def _on_append_answer(self, sender: NodeId, message: Message) -> None:
        if message["term"] > self.core.term:
            self.core.step_down(message["term"])
            return
        leadership = self.leadership
        if leadership is None or message["term"] < self.core.term:
            return
        leadership.replicator.answered(sender, message)
        self.kick()

    def _run_guarded(self) -> None:
        self._kicked = False
        if self.stopped:
            return
        try:
            self._run()
        except Exception as error:
            self._owner.broken(error)

    def _run(self) -> None:
        leadership = self.leadership
        if leadership is not None:
            self._lead(leadership)
        self.applier.kick(min(self.commit_index, self.journal.durable_index))
        self._owner.role_may_have_changed()

    def _lead(self, leadership: Leadership) -> None:
        replicator = leadership.replicator
        index = next_commit_index(
            replicator.majority_durable_index(),
            commit_index=self.commit_index,
            term=leadership.term,
            term_of=self.journal.term_of,
        )
        if index > self.commit_index:
            self.commit_to(index)
            self._notice_commit_soon()
        self._fill(leadership)
        began = leadership.reads.begin()
        replicator.send_entries(self.commit_index, leadership.reads.round)
        if began:
            replicator.send_heartbeats(self.commit_index, leadership.reads.round)
        leadership.reads.confirm(replicator.majority_read_round(leadership.reads.round))
        if leadership.reads.begin():
            replicator.send_heartbeats(self.commit_index, leadership.reads.round)
            if not self.others:
                self.kick()
        successor = leadership.take_ready_successor(self.journal.last_index, self.commit_index)
        if successor is not None:
            self.send(successor, {"type": "timeout_now", "term": leadership.term})

    def _fill(self, leadership: Leadership) -> None:
        commits = leadership.commits
        if not commits.has_work or leadership.hands_over or not self._views_are_fresh(leadership):
            return
        try:
            filled = commits.fill(self._append)
        except Overloaded:
            # The queue keeps the records; the disk's next success kicks again.
            self.journal.when_durable(self.kick)
            return
        if filled:
            self.statistics.entries += filled
            self._sync_watch.changed()
            self.journal.when_durable(self.kick)

    def _append(self, payload: bytes, events: int) -> tuple[int, int, int]:
        first_position = self.journal.last_position + 1
        index = self.journal.append(self.core.term, payload, events)
        return index, self.core.term, first_position

    def _views_are_fresh(self, leadership: Leadership) -> bool:
        lag_ms_max = self.config.view_lag_ms_max
        fresh = int(self.applier.lag_ms <= lag_ms_max)
        fresh += leadership.replicator.fresh_views(
            lag_ms_max, silence_s_max=self.config.leader_contact_ms_max / 1000
        )
        return fresh >= majority_of(len(self.members))

    def _retire(self, leadership: Leadership) -> None:
        """Step down because this process is stuck, and let the best follower try at once."""
        best = leadership.replicator.best_follower()
        term = leadership.term
        self.step_down("the loop or the disk stood still")
        if best is not None:
            self.send(best, {"type": "timeout_now", "term": term})

    def _end_leadership(self, why: str) -> None:
        leadership, self.leadership = self.leadership, None
        if leadership is not None:
            hint = self.core.leader_id
            leadership.end(why, None if hint == self.node_id else hint)

    def _notice_commit_soon(self) -> None:
        if self.others and self._commit_notice is None:
            self._commit_notice = self._loop.call_later(COMMIT_NOTICE_S, self._notice_commit)

    def _notice_commit(self) -> None:
        self._commit_notice = None
        leadership = self.leadership
        if leadership is not None and not self.stopped:
            leadership.replicator.send_commit(self.commit_index, leadership.reads.round)

    # Both -------------------------------------------------------------------------------------

    def commit_to(self, index: int) -> None:
        """Note that everything up to ``index`` is committed; earlier ones are ignored."""
        if index <= self.commit_index:
            return
        first, self.commit_index = self.commit_index + 1, index
        last = self.journal.entry(index)
        self.commit_position = last.first_position + last.events - 1
        self.applier.committed(index)
        known: Mapping[int, Entry] = {}
        if self.leadership is not None:
            known = self.leadership.commits.commit(index)
            self.statistics.commits += sum(len(entry.records) for entry in known.values())
        self._owner.committed(first, index, known)

    def _applied(self, point: AppliedPoint) -> None:
        self._owner.applied(point)
        if self.leadership is not None:
            self.kick()
        elif not self.stopped:
            self._following.report_fresh_view()
        self._owner.role_may_have_changed()

    def _may_campaign(self) -> bool:
        return (
            not self.stopped
            and not self.installing
            and not self.journal.doubt_index
            and not self.disk.is_stalled
        )
