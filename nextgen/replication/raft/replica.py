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
from collections.abc import Callable, Mapping

from nextgen.kernel.errors import NotLeader
from nextgen.replication.config import RaftConfig
from nextgen.replication.election.overrides import HardenedSyncObj
from nextgen.replication.election.peer_checks import PeerChecks
from nextgen.replication.election.term_probe import PROBE_TERM, TermProbe
from nextgen.replication.election.timers import Election
from nextgen.replication.journal.journal import Journal
from nextgen.replication.journal.sync_watch import SyncWatch
from nextgen.replication.mesh.frames import Message, RemoteProtocolError
from nextgen.replication.ports import (
    AppliedPoint,
    Commit,
    Configuration,
    Entry,
    GroupId,
    MemberChange,
    NodeId,
    Record,
    Role,
    RoleChange,
    StateMachine,
)
from nextgen.replication.protocol.membership import members_of
from nextgen.replication.protocol.messages import check_message
from nextgen.replication.raft.applier import Applier
from nextgen.replication.raft.disk_room import DiskRoom
from nextgen.replication.raft.divergence import DigestComparison
from nextgen.replication.raft.following import Following
from nextgen.replication.raft.leadership import Leadership
from nextgen.replication.raft.leading import Leading
from nextgen.replication.raft.replica_owner import Link, ReplicaOwner
from nextgen.replication.raft.replicator import Replicator
from nextgen.replication.statistics import ReplicaStatistics
from nextgen.replication.view.turns import ViewTurns


class RaftReplica:
    """See the module. Opened by ``start``, ended by ``stop``."""

    def __init__(
        self,
        *,
        group_id: GroupId,
        node_id: NodeId,
        given: Configuration,
        journal: Journal,
        state_machine: StateMachine,
        applied: AppliedPoint,
        link: Link,
        config: RaftConfig,
        turns: ViewTurns,
        random_source: random.Random,
        owner: ReplicaOwner,
    ) -> None:
        self.group_id = group_id
        self.node_id = node_id
        self._given = given
        self.journal = journal
        self.config = config
        self.statistics = ReplicaStatistics()
        self.commit_index = max(applied.index, journal.base_index)  # It was cut once committed.
        self.commit_position = max(applied.position, journal.base_position)
        self.leadership: Leadership | None = None
        self.stopped = self.installing = False
        self._link = link
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._kicked = False
        self._sync_watch = SyncWatch(journal, self.statistics)
        self.core = HardenedSyncObj(node_id, lambda: self.configuration, journal, self)
        self.applier = Applier(
            journal,
            state_machine,
            applied=applied,
            turns=turns,
            delay_ms=config.apply_delay_ms,
            retry_ms=config.apply_retry_ms,
            is_awaited=self._is_view_awaited,
            on_applied=self._applied,
            on_broken=owner.broken,
        )
        self.election = Election(
            self.core,
            group_id=group_id,
            node_id=node_id,
            configuration=lambda: self.configuration,
            config=config,
            random_source=random_source,
            log_end=lambda: (journal.last_index, journal.last_term),
            send=self.send,
            may_campaign=self._may_campaign,
            is_disk_stuck=self._is_disk_stuck,
        )
        self.probe = TermProbe(self)
        self.checks = PeerChecks(self, given)
        self.disk = DiskRoom(group_id, journal, self.applier)
        self.following = Following(self, self._sync_watch)
        self.leading = Leading(self, self._sync_watch)
        self.divergence = DigestComparison(self, state_machine.digest, owner.diverged)
        self._handlers: dict[str, Callable[[NodeId, Message], None]] = {
            "pre_vote": self._on_pre_vote,
            "pre_vote_answer": self.election.on_pre_vote_answer,
            "request_vote": self._on_request_vote,
            "response_vote": self.core.vote_received,
            "append": self.following.on_append,
            "append_answer": self.leading.on_append_answer,
            "timeout_now": self._on_timeout_now,
            "view_diverged": self.divergence.on_view_diverged,
        }

    def __repr__(self) -> str:
        return (
            f"<RaftReplica group={self.group_id} node={self.node_id} role={self.role} "
            f"term={self.core.term} last={self.journal.last_index} commit={self.commit_index} "
            f"applied={self.applier.applied.index}>"
        )

    def start(self) -> None:
        for member in members_of(self.configuration):
            if self._link.is_connected(member):
                self.core.note_connected(member)
        self.divergence.applied()
        self.election.start()
        self._probe_if_needed()
        self._owner.role_may_have_changed()

    def abandon(self) -> None:
        """End at once, without finishing any work: see ``PySyncObjHost.abandon``."""
        self._end()
        self.applier.abandon()

    async def stop(self) -> None:
        """End every timer, fail all waiting callers, and wait for the batch in progress."""
        self._end()
        await self.applier.stop()

    def _end(self) -> None:
        self.stopped = True
        self.election.stop()
        self.leading.stop()
        self._end_leadership("the replica stopped")

    # What it is -------------------------------------------------------------------------------

    @property
    def configuration(self) -> Configuration:
        """The newest one in the log, committed or not, else the one the group began with (H12).

        Every count reads it, so that a configuration that is appended or cut off takes
        effect at once.
        """
        return self.journal.configuration or self._given

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.configuration.voters

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
        if self.journal.unverified_index:
            return Role.NON_VOTER
        if self.is_ready_leader:
            return Role.LEADER
        if self.core.leads or self.core.campaigns:
            return Role.CANDIDATE
        return Role.FOLLOWER if self.is_voter else Role.LEARNER

    @property
    def role_change(self) -> RoleChange:
        leader_id = None if self.stopped else self.core.leader_id
        return RoleChange(self.core.term, self.role, leader_id)

    def has_role(self, change: RoleChange) -> bool:
        """Return whether ``change`` equals ``role_change``. Called for every message."""
        core = self.core
        return (
            not self.stopped
            and core.term == change.term
            and core.leader_id == change.leader_id
            and self.role is change.role
        )

    def not_leader(self) -> NotLeader:
        leader_id = self.core.leader_id
        return NotLeader(self.group_id, None if leader_id == self.node_id else leader_id)

    # Requests ---------------------------------------------------------------------------------

    def propose(self, record: Record) -> asyncio.Future[Commit]:
        if not self.is_ready_leader or self.leadership is None:
            raise self.not_leader()
        self.disk.check(self.commit_position)
        future = self.leadership.commits.propose(record)
        self.kick()
        return future

    def ask_read_index(self, asked_at: float | None) -> asyncio.Future[int]:
        if not self.is_ready_leader or self.leadership is None:
            raise self.not_leader()
        if asked_at is not None and self.leadership.confirmed_at > asked_at:
            future = self._loop.create_future()
            future.set_result(self.commit_index)
            return future
        future = self.leadership.reads.ask(self.commit_index)
        self.kick()
        return future

    def change_members(self, change: MemberChange) -> asyncio.Future[Configuration]:
        if self.stopped or self.leadership is None:
            raise self.not_leader()
        return self.leading.change_members(self.leadership, change)

    def view_is_wanted(self) -> None:
        """A caller starts to wait for the view: see ``ReplicaOwner.is_view_awaited``."""
        self.applier.kick(min(self.commit_index, self.journal.durable_index))

    def kick(self) -> None:
        """Run at the end of this turn of the loop, once."""
        if not self._kicked and not self.stopped:
            self._kicked = True
            self._loop.call_soon(self._run_guarded)

    def heartbeat(self, late_ms: float) -> None:
        """Send heartbeats, every ``heartbeat_ms``; ``late_ms`` is the delay of the event loop."""
        if not self.stopped and self.leadership is not None:
            self.leading.heartbeat(self.leadership, late_ms)
        self._probe_if_needed()

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
        if self.stopped:
            return
        try:
            if not self.checks.admits(kind, sender, message):
                return
            if self.probe.is_open:
                self.probe.on_message(kind, sender, message)
                self._owner.role_may_have_changed()
                return
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
        if self.stopped:
            return
        self.core.note_connected(node_id)
        if self.probe.is_open:
            self.probe.ask_connected(node_id)
        if self.leadership is not None and self.leadership.replicator.connected(node_id):
            self.kick()

    def on_peer_disconnected(self, node_id: NodeId) -> None:
        if self.stopped:
            return
        self.core.note_disconnected(node_id)
        if self.leadership is not None:
            self.leadership.replicator.disconnected(node_id)
        self._owner.peer_lost(node_id)

    def on_peer_unreachable(self, node_id: NodeId) -> None:
        if not self.stopped:
            self.election.on_peer_unreachable(node_id)

    # From the library -------------------------------------------------------------------------

    def send_when_durable(self, node_id: NodeId, message: Message) -> None:
        def send() -> None:
            if not self.stopped:
                self.send(node_id, message)

        self._sync_watch.changed()
        self.journal.when_durable(send)

    def leadership_won(self, first_index: int) -> None:
        replicator = Replicator(
            self.journal,
            term=self.core.term,
            node_id=self.node_id,
            configuration=lambda: self.configuration,
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

    def expect_snapshot(
        self, point: AppliedPoint, configuration: Configuration | None
    ) -> asyncio.Future[None]:
        """Return a future of when a snapshot of ``point`` may be installed.

        Its ``configuration`` has to be on disk before the view: a crash in between must not leave a
        log that continues at ``point`` with other members than the group has. None: the members
        never changed, so a configuration in this log was never committed.
        """
        ready: asyncio.Future[None] = self._loop.create_future()
        self.journal.learn_configuration(configuration, index=point.index)
        self.journal.when_durable(lambda: None if ready.done() else ready.set_result(None))
        return ready

    def adopt_snapshot(self, point: AppliedPoint) -> None:
        """Continue behind a snapshot that the view has installed."""
        journal = self.journal
        if self.core.campaigns:
            self.core.step_down(self.core.term)  # The voters may have changed.
        inside = journal.base_index <= point.index <= journal.last_index
        if not inside or journal.term_of(point.index) != point.term:
            # What lies behind the snapshot here was never acknowledged as part of this log.
            configuration = journal.configuration_at(point.index)
            journal.reset_to(point.index, point.term, point.position, configuration)
            self.following.forget_behind(point.index)
        if point.index > self.commit_index:
            self.commit_index = point.index
            self.commit_position = point.position
        self.statistics.snapshots_installed += 1
        self.divergence.begin_again()
        self.applier.resume_from(point)

    # Voting -----------------------------------------------------------------------------------

    @property
    def _may_vote(self) -> bool:
        """Return whether to vote.

        A learner votes if the candidate counts it: it may have been promoted (thesis, 4.2.1). A
        replica that does not know its group does not vote: it may have lost earlier votes.
        """
        return not self.journal.unverified_index and bool(self.configuration.voters)

    def _on_pre_vote(self, sender: NodeId, message: Message) -> None:
        if message["term"] == PROBE_TERM:
            self.probe.on_question(sender)
        elif self._may_vote:
            self.election.on_pre_vote(sender, message)

    def _probe_if_needed(self) -> None:
        if not self.stopped and self.probe.is_open:
            self.probe.ask()

    def _on_request_vote(self, sender: NodeId, message: Message) -> None:
        if not self._may_vote:
            return
        if not message["transfer"] and (self.core.leads or self.election.is_leader_alive):
            return
        if self.core.vote_requested(sender, message):
            self.election.voted()

    def _on_timeout_now(self, sender: NodeId, message: Message) -> None:
        if message["term"] == self.core.term and sender == self.core.leader_id:
            self.election.campaign_for_transfer()

    # The turn of the loop ---------------------------------------------------------------------

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
            self.leading.run(leadership)
        self.applier.kick(min(self.commit_index, self.journal.durable_index))
        self._owner.role_may_have_changed()

    def _end_leadership(self, why: str) -> None:
        leadership, self.leadership = self.leadership, None
        if leadership is not None:
            hint = self.core.leader_id
            leadership.end(why, None if hint == self.node_id else hint)

    # Both -------------------------------------------------------------------------------------

    def commit_to(self, index: int) -> None:
        """Note that everything up to ``index`` is committed; earlier ones are ignored."""
        if index <= self.commit_index:
            return
        first, self.commit_index = self.commit_index + 1, index
        last = self.journal.entry(index)
        self.commit_position = last.first_position + last.events - 1
        self.applier.committed(index, self.commit_position)
        known: Mapping[int, Entry] = {}
        if self.leadership is not None:
            known = self.leadership.commits.commit(index)
            self.leadership.committed(index)
            self.statistics.commits += sum(len(entry.records) for entry in known.values())
        self._owner.committed(first, index, known)

    def _applied(self, point: AppliedPoint) -> None:
        self.divergence.applied()
        self._owner.applied(point)
        if self.leadership is not None:
            self.kick()
        elif not self.stopped:
            self.following.report_fresh_view()
        self._owner.role_may_have_changed()

    def _is_view_awaited(self) -> bool:
        leadership = self.leadership
        takes_over = leadership is not None and self.applier.applied.index < leadership.first_index
        return takes_over or self._owner.is_view_awaited

    def _may_campaign(self) -> bool:
        return (
            not self.stopped
            and not (self.installing or self.applier.awaits_snapshot)
            and not self.journal.unverified_index
            and not self.disk.is_stalled
            and not self._is_disk_stuck()
            and self.applier.batch_ms <= self.config.view_stall_ms_max
            and (self.is_voter or self._may_still_be_needed())
        )

    def _is_disk_stuck(self) -> bool:
        """Whether the journal waits for its disk for so long that a leader would step down.

        Neither a vote nor a request for votes of this replica leaves before that ends.
        """
        return self._sync_watch.age_ms > self.config.stall_ms_max

    def _may_still_be_needed(self) -> bool:
        """Whether only this replica may have the entry that removes it (thesis, 4.2.2)."""
        removal = self.configuration.index
        if removal <= self.commit_index:
            return False
        before = self.journal.configuration_at(removal - 1) or self._given
        return self.node_id in before.voters
