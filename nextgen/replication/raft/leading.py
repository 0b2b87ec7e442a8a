"""The leader's side: queued proposals become entries, which a majority's disks commit."""

from __future__ import annotations

import asyncio
from typing import Protocol

from nextgen.kernel.errors import Overloaded, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import LEARNER_LAG_ENTRIES_MAX
from nextgen.replication.config import RaftConfig
from nextgen.replication.election.overrides import HardenedSyncObj
from nextgen.replication.journal.journal import Journal
from nextgen.replication.journal.sync_watch import SyncWatch
from nextgen.replication.mesh.frames import Message, RemoteProtocolError
from nextgen.replication.ports import ChangeKind, Configuration, MemberChange, NodeId
from nextgen.replication.protocol.membership import after_change, encode_configuration
from nextgen.replication.protocol.messages import DIGEST_FIELD, SNAPSHOT_WANTED_FIELD
from nextgen.replication.protocol.quorum import next_commit_index
from nextgen.replication.raft.applier import Applier
from nextgen.replication.raft.disk_room import DiskRoom
from nextgen.replication.raft.divergence import DigestComparison
from nextgen.replication.raft.leadership import Leadership
from nextgen.replication.statistics import ReplicaStatistics

EXPEDITED_NOTICE_S = 0.001
"""Delay until a commit is sent to a follower that requested it; those of a millisecond share one
message. Other followers learn it with the next entry or heartbeat."""

SUCCESSOR_LOOK_S = 0.01
"""Delay until a leader that was removed asks whether its successor leads: that one sends it
nothing, and answers with the later term."""


class LeadingReplica(Protocol):
    """The part of a replica that leading needs."""

    node_id: NodeId
    core: HardenedSyncObj
    journal: Journal
    applier: Applier
    disk: DiskRoom
    config: RaftConfig
    statistics: ReplicaStatistics
    leadership: Leadership | None
    commit_index: int
    stopped: bool
    divergence: DigestComparison

    @property
    def configuration(self) -> Configuration: ...
    def send(self, node_id: NodeId, message: Message) -> bool: ...
    def kick(self) -> None: ...
    def commit_to(self, index: int) -> None: ...
    def step_down(self, why: str) -> None: ...


class Leading:
    """Does a leader's work, once per turn of the loop and once per heartbeat."""

    def __init__(self, replica: LeadingReplica, sync_watch: SyncWatch) -> None:
        self._replica = replica
        self._sync_watch = sync_watch
        self._loop = asyncio.get_running_loop()
        self._expedited_notice: asyncio.TimerHandle | None = None
        self._leave_deadline: asyncio.TimerHandle | None = None
        self._successor_look: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        for timer in (self._expedited_notice, self._leave_deadline, self._successor_look):
            if timer is not None:
                timer.cancel()

    def heartbeat(self, leadership: Leadership, late_ms: float) -> None:
        """Send heartbeats, or step down if this replica must not lead."""
        replica = self._replica
        leadership.replicator.follow_configuration(replica.commit_index)
        if not leadership.replicator.voters:
            leadership.replicator.send_heartbeats(replica.commit_index, leadership.reads.round)
            return
        is_stuck = self._is_stuck(late_ms)
        silent_ms = (self._loop.time() - leadership.replicator.majority_heard_at()) * 1000
        if silent_ms > replica.config.leader_contact_ms_max:
            replica.step_down("no majority was heard")
        elif replica.disk.should_hand_over(leadership.replicator, replica.commit_index, is_stuck):
            self._retire(leadership)
        else:
            leadership.reads.begin_with_heartbeat()
            leadership.replicator.send_heartbeats(replica.commit_index, leadership.reads.round)

    def _is_stuck(self, late_ms: float) -> bool:
        config = self._replica.config
        journal_is_stuck = max(late_ms, self._sync_watch.age_ms) > config.stall_ms_max
        return journal_is_stuck or self._replica.applier.batch_ms > config.view_stall_ms_max

    def on_append_answer(self, sender: NodeId, message: Message) -> None:
        replica, leadership = self._replica, self._replica.leadership
        # A node that is no member any more deposes no leader.
        if leadership is None or sender not in leadership.replicator.followers:
            return
        if message["term"] > replica.core.term:
            replica.core.step_down(message["term"])
            return
        if message["term"] < replica.core.term:
            return
        if message["read_round"] > leadership.reads.round:
            raise RemoteProtocolError("an answer confirms reads that were not begun yet")
        leadership.replicator.answered(sender, message)
        # It may have begun to wait for a commit that is here already.
        self._notice_commit_soon(leadership)
        replica.divergence.heard(sender, message.get(DIGEST_FIELD))
        wanted_index = message.get(SNAPSHOT_WANTED_FIELD, 0)
        if 0 < wanted_index <= replica.applier.applied.index:
            leadership.replicator.send_snapshot(sender)
        if self._answer_matters(leadership, sender):
            replica.kick()

    def _answer_matters(self, leadership: Leadership, sender: NodeId) -> bool:
        """Return whether an answer of ``sender`` may have given this leader something to do.

        That of the last follower, after a majority had the entry, and those to heartbeats do not.
        """
        replica, replicator = self._replica, leadership.replicator
        last_index = replica.journal.last_index
        return (
            not leadership.is_quiet
            or replica.commit_index < last_index
            or replicator.followers[sender].next_index <= last_index
            or not replicator.counts_itself
        )

    def run(self, leadership: Leadership) -> None:
        """Commit entries that a majority has, fill new ones, send them, confirm reads."""
        replica, replicator = self._replica, leadership.replicator
        replicator.follow_configuration(replica.commit_index)
        leadership.commits.note_durable(replica.journal.durable_index)
        index = next_commit_index(
            replicator.majority_durable_index(),
            commit_index=replica.commit_index,
            term=leadership.term,
            term_of=replica.journal.term_of,
        )
        if index > replica.commit_index:
            replica.commit_to(index)
            self._notice_commit_soon(leadership)
        filled = self._fill(leadership)
        began = leadership.reads.begin()
        replicator.send_entries(replica.commit_index, leadership.reads.round)
        if filled:
            # After the messages to the followers were queued, because their path is longer.
            self._loop.call_soon(self._write)
        if began:
            replicator.send_heartbeats(replica.commit_index, leadership.reads.round)
        leadership.reads.confirm(replicator.majority_read_round(leadership.reads.round))
        if leadership.reads.begin():
            replicator.send_heartbeats(replica.commit_index, leadership.reads.round)
            if replicator.majority_read_round(leadership.reads.round) == leadership.reads.round:
                replica.kick()
        successor = leadership.take_ready_successor(
            replica.journal.last_index, replica.commit_index
        )
        if successor is not None:
            replica.send(successor, {"type": "timeout_now", "term": leadership.term})
            if not replicator.counts_itself:
                self._successor_look = self._loop.call_later(
                    SUCCESSOR_LOOK_S, self._look_for_successor, leadership
                )
        if replica.configuration.index <= replica.commit_index and not replicator.counts_itself:
            self._leave(leadership)

    # Members ----------------------------------------------------------------------------------

    def change_members(
        self, leadership: Leadership, change: MemberChange
    ) -> asyncio.Future[Configuration]:
        """Append the configuration that ``change`` makes; see ``ReplicatedLog``."""
        replica, journal = self._replica, self._replica.journal
        present = replica.configuration
        if replica.commit_index < max(present.index, leadership.first_index):
            # Majorities of what two leaders make of two uncommitted ones need not overlap.
            raise Refused(RejectionCode.NOT_ALLOWED, "another change of members is under way")
        if leadership.hands_over:
            raise Refused(RejectionCode.NOT_ALLOWED, "leadership is being handed over")
        wanted = after_change(present, change, index=journal.last_index + 1)
        if wanted is present:
            made: asyncio.Future[Configuration] = self._loop.create_future()
            made.set_result(present)
            return made
        if change.kind is ChangeKind.PROMOTE:
            self._check_caught_up(leadership, change.node_id)
        journal.append(replica.core.term, encode_configuration(wanted), 0)
        replica.statistics.entries += 1
        self._sync_watch.changed()
        journal.when_durable(replica.kick)
        replica.kick()
        return leadership.await_commit_of(wanted)

    def _check_caught_up(self, leadership: Leadership, node_id: NodeId) -> None:
        learner = leadership.replicator.followers.get(node_id)
        if learner is None or not learner.connected or learner.needs_snapshot:
            raise Refused(RejectionCode.NOT_ALLOWED, f"{node_id} does not follow at the moment")
        missing = self._replica.journal.last_index - learner.match_index
        # Of a short log it may lack little and yet not be there at all: a host that runs, a
        # group that is not open. It has to have acknowledged the entry that made it a learner.
        is_here = learner.match_index >= self._replica.configuration.index
        if missing > LEARNER_LAG_ENTRIES_MAX or not is_here:
            raise Refused(
                RejectionCode.NOT_ALLOWED,
                f"{node_id} has not caught up, it lacks {missing} entries",
            )

    def _leave(self, leadership: Leadership) -> None:
        """Hand over because this replica was removed; stop leading even without a successor."""
        if self._leave_deadline is not None or leadership.hands_over:
            return
        best = leadership.replicator.best_follower()
        if best is None:
            self._replica.step_down("this replica was removed")
            return
        leadership.hand_over(best)
        self._leave_deadline = self._loop.call_later(
            self._replica.config.transfer_deadline_ms / 1000, self._left, leadership
        )
        self._replica.kick()

    def _look_for_successor(self, leadership: Leadership) -> None:
        replica = self._replica
        if replica.leadership is leadership and not replica.stopped:
            leadership.replicator.send_heartbeats(replica.commit_index, leadership.reads.round)

    def _left(self, leadership: Leadership) -> None:
        self._leave_deadline = None
        if self._replica.leadership is leadership:
            self._replica.step_down("this replica was removed")

    # Entries ----------------------------------------------------------------------------------

    def _fill(self, leadership: Leadership) -> int:
        """Append the waiting records as entries; return how many entries."""
        replica, commits = self._replica, leadership.commits
        if not commits.has_work or leadership.hands_over or not self._views_are_fresh(leadership):
            return 0
        try:
            filled = commits.fill(self._append)
        except Overloaded:
            # The queue keeps the records; the disk's next success kicks again.
            replica.journal.when_durable(replica.kick)
            return 0
        replica.statistics.entries += filled
        return filled

    def _write(self) -> None:
        """Start writing the new entries to this replica's own disk."""
        if not self._replica.stopped:
            self._sync_watch.changed()
            self._replica.journal.when_durable(self._replica.kick)

    def _append(self, payload: bytes, events: int) -> tuple[int, int, int]:
        journal, term = self._replica.journal, self._replica.core.term
        first_position = journal.last_position + 1
        return journal.append(term, payload, events), term, first_position

    def _views_are_fresh(self, leadership: Leadership) -> bool:
        config = self._replica.config
        return leadership.replicator.is_majority_fresh(
            self._replica.applier.lag_ms,
            config.view_lag_ms_max,
            config.leader_contact_ms_max / 1000,
        )

    def _retire(self, leadership: Leadership) -> None:
        """Step down because the process or its disk is stuck, and let the best follower try."""
        best = leadership.replicator.best_follower()
        term = leadership.term
        self._replica.step_down("the loop or the disk stood still")
        if best is not None:
            self._replica.send(best, {"type": "timeout_now", "term": term})

    def _notice_commit_soon(self, leadership: Leadership) -> None:
        waits = leadership.replicator.any_waits_for(self._replica.commit_index)
        if waits and self._expedited_notice is None:
            self._expedited_notice = self._loop.call_later(
                EXPEDITED_NOTICE_S, self._notice_expedited
            )

    def _notice_expedited(self) -> None:
        self._expedited_notice = None
        replica, leadership = self._replica, self._replica.leadership
        if leadership is not None and not replica.stopped:
            leadership.replicator.send_commit_expedited(
                replica.commit_index, leadership.reads.round
            )
