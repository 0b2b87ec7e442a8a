"""The follower's side: entries are appended, and acknowledged when they are durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nextgen.kernel.errors import Overloaded
from nextgen.replication.config import RaftConfig
from nextgen.replication.election.overrides import HardenedSyncObj
from nextgen.replication.election.peer_checks import PeerChecks
from nextgen.replication.election.term_probe import TermProbe
from nextgen.replication.election.timers import Election
from nextgen.replication.journal.journal import Journal
from nextgen.replication.journal.sync_watch import SyncWatch
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import NodeId
from nextgen.replication.protocol.heartbeats import Heartbeat
from nextgen.replication.protocol.membership import decode_configuration
from nextgen.replication.protocol.messages import (
    CONFIGURATION_FIELD,
    DIGEST_FIELD,
    EXPEDITE_FIELD,
    SNAPSHOT_WANTED_FIELD,
)
from nextgen.replication.raft.append_rules import FollowOutcome, follow_append
from nextgen.replication.raft.applier import Applier
from nextgen.replication.raft.disk_room import DiskRoom
from nextgen.replication.raft.divergence import DigestComparison
from nextgen.replication.statistics import ReplicaStatistics


class FollowingReplica(Protocol):
    """The part of a replica that following needs."""

    core: HardenedSyncObj
    journal: Journal
    election: Election
    applier: Applier
    disk: DiskRoom
    config: RaftConfig
    statistics: ReplicaStatistics
    commit_index: int
    stopped: bool
    installing: bool
    divergence: DigestComparison
    probe: TermProbe
    checks: PeerChecks

    def send(self, node_id: NodeId, message: Message) -> bool: ...
    def kick(self) -> None: ...
    def commit_to(self, index: int) -> None: ...


class Following:
    """Answers the ``append`` messages of the leader."""

    def __init__(self, replica: FollowingReplica, sync_watch: SyncWatch) -> None:
        self._replica = replica
        self._sync_watch = sync_watch
        self._agreed_index = 0  # Up to here this log is the present leader's.
        self._view_may_reach = 0
        self._reported_lag_ms = 0
        self._expedited: set[object] = set()

    def expedite(self) -> Callable[[], None]:
        """Have the leader send commits at once; see ``ReplicatedLog.expedite_commits``."""
        wish = object()
        is_first = not self._expedited
        self._expedited.add(wish)
        if is_first and not (self._replica.stopped or self._replica.installing):
            self._report()
        return lambda: self._expedited.discard(wish)

    def forget_behind(self, index: int) -> None:
        """Note that the log was cut off behind ``index``."""
        self._agreed_index = min(self._agreed_index, index)

    def on_append(self, sender: NodeId, message: Message) -> None:
        term = message["term"]
        if term < self._replica.core.term:
            # The answer carries the later term: a deposed leader learns it at once.
            self._answer(sender, success=False, index=self._replica.journal.last_index + 1)
            return
        if (
            self._replica.core.leader_id != sender
            or term > self._replica.core.term
            or self._replica.core.campaigns
        ):
            self._replica.core.follow(sender, term)
            self._agreed_index = 0
        self._replica.election.heard_from_leader()
        if self._replica.installing:
            self._answer(sender, success=False, index=self._replica.journal.last_index + 1)
            return
        before = self._replica.journal.last_index
        try:
            outcome = follow_append(self._replica.journal, self._replica.commit_index, message)
        except Overloaded:
            wanted = FollowOutcome(
                success=False, index=self._replica.journal.last_index + 1, truncated=0
            )
            self._answer_when_durable(sender, message, wanted)
            return
        self._replica.statistics.truncations += outcome.truncated
        self._replica.statistics.entries += max(
            0, self._replica.journal.last_index - before + outcome.truncated
        )
        self._answer_outcome(sender, message, outcome)

    def answer_heartbeat(self, sender: NodeId, heartbeat: Heartbeat) -> Message | None:
        """Return the answer to a heartbeat of the present leader that brings nothing new.

        None for any other, which is to be handled as the ``append`` that it stands for. That has
        the same effect; this only skips what cannot happen.
        """
        replica, core, journal = self._replica, self._replica.core, self._replica.journal
        is_usual = (
            not replica.stopped
            and not replica.installing
            and not replica.applier.awaits_snapshot
            and core.term == heartbeat.term
            and core.leader_id == sender
            and not core.campaigns
            and not replica.checks.has_claims
            and not journal.unverified_index
            and heartbeat.commit_index <= replica.commit_index
            and journal.base_index <= heartbeat.previous_index <= journal.last_index
            and journal.term_of(heartbeat.previous_index) == heartbeat.previous_term
        )
        if not is_usual:
            return None
        replica.election.heard_from_leader()
        agreed = heartbeat.previous_index
        self._agreed_index = max(self._agreed_index, agreed)
        self._let_view_follow()
        durable = min(agreed, journal.durable_index)
        return self._answer_of(success=True, index=durable, read_round=heartbeat.read_round)

    def _answer_outcome(self, sender: NodeId, message: Message, outcome: FollowOutcome) -> None:
        if not outcome.success:
            self._answer(
                sender, success=False, index=outcome.index, read_round=message["read_round"]
            )
            return
        self._agreed_index = max(self._agreed_index, outcome.index)
        self._learn_configuration(message)
        self._replica.commit_to(min(message["commit_index"], outcome.index))
        self._verify_if_covered(message, outcome.index)
        if message["entries"]:
            self._sync_watch.changed()
            self._answer_when_durable(sender, message, outcome)
        else:
            durable = min(outcome.index, self._replica.journal.durable_index)
            self._answer(sender, success=True, index=durable, read_round=message["read_round"])
        self._let_view_follow()

    def _let_view_follow(self) -> None:
        """Run if the view may fold more than before."""
        reached = min(self._replica.commit_index, self._replica.journal.durable_index)
        if reached > self._view_may_reach:
            self._view_may_reach = reached
            self._replica.kick()

    def _learn_configuration(self, message: Message) -> None:
        data, index = message.get(CONFIGURATION_FIELD), message["previous_index"]
        if data is not None and index >= self._replica.journal.base_index:
            # Up to there both logs are the same, and so is what holds there.
            self._replica.journal.learn_configuration(decode_configuration(data), index=index)

    def _answer_when_durable(
        self, sender: NodeId, message: Message, outcome: FollowOutcome
    ) -> None:
        term = message["term"]

        def answer() -> None:
            if self._replica.stopped or self._replica.core.term != term:
                return  # Another leader may have cut off what this would acknowledge.
            self._answer(
                sender,
                success=outcome.success,
                index=outcome.index,
                read_round=message["read_round"],
            )
            self._let_view_follow()

        self._replica.journal.when_durable(answer)

    def _answer(self, node_id: NodeId, *, success: bool, index: int, read_round: int = 0) -> None:
        if self._replica.probe.is_open:
            return  # These entries made it a voter, and it may have been one before.
        self._replica.send(
            node_id, self._answer_of(success=success, index=index, read_round=read_round)
        )

    def _answer_of(self, *, success: bool, index: int, read_round: int) -> Message:
        self._reported_lag_ms = int(self._replica.applier.lag_ms)
        message: Message = {
            "type": "append_answer",
            "term": self._replica.core.term,
            "success": success,
            "index": index,
            "read_round": read_round,
            "applied_index": self._replica.applier.applied.index,
            "view_lag_ms": self._reported_lag_ms,
            "disk_takes_writes": self._replica.disk.trouble is None,
            DIGEST_FIELD: self._replica.divergence.answer_field,
        }
        if self._expedited:
            message[EXPEDITE_FIELD] = True
        if self._replica.applier.awaits_snapshot:
            message[SNAPSHOT_WANTED_FIELD] = self._replica.journal.base_index
        return message

    def _verify_if_covered(self, message: Message, agreed: int) -> None:
        unverified = self._replica.journal.unverified_index
        if not unverified:
            return
        # An entry of the leader's own term that is committed proves that everything this replica
        # may have acknowledged and lost is at or before it, for that was in no later term: a
        # voter whose term is unknown does not get here before it has adopted a bound of it.
        commit = message["commit_index"]
        journal = self._replica.journal
        proven = (
            journal.base_index <= commit <= agreed and journal.term_of(commit) == message["term"]
        )
        if agreed >= unverified or proven:
            journal.set_unverified(0)
            journal.flush()

    def report_fresh_view(self) -> None:
        """Report to the leader that this view, which it counts as behind, has caught up."""
        if self._reported_lag_ms <= self._replica.config.view_lag_ms_max:
            return
        if self._replica.applier.lag_ms <= self._replica.config.view_lag_ms_max:
            self._report()

    def _report(self) -> None:
        """Answer the leader without a question."""
        leader_id = self._replica.core.leader_id
        agreed = min(self._agreed_index, self._replica.journal.durable_index)
        # Without an entry that both have, a success would end the leader's search for one.
        if leader_id is not None and agreed and not self._replica.core.leads:
            self._answer(leader_id, success=True, index=agreed)
