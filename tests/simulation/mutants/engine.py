"""The guards of the engine: one Raft group, from its journal to its snapshots."""

from __future__ import annotations

from dataclasses import replace

from nextgen.replication.election import library_check as pysyncobj_check
from nextgen.replication.election.overrides import HardenedSyncObj
from nextgen.replication.election.timers import Election
from nextgen.replication.host import raft_host, view_join
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.journal import pending as journal_pending
from nextgen.replication.journal import repair as journal_repair
from nextgen.replication.journal import worker as journal_worker
from nextgen.replication.journal import writers as journal_writers
from nextgen.replication.protocol import membership, quorum
from nextgen.replication.raft import (
    append_rules,
    applier,
    following,
    group_commit,
    leading,
    read_rounds,
    replicator,
)
from nextgen.replication.raft import replica as raft_replica
from nextgen.replication.snapshot import transfer as snapshot_transfer
from nextgen.replication.view.turns import ViewTurns
from nextgen.storage import disk as storage
from tests.simulation.mutants.mutant import Edit, Mutant

REPLICA = raft_replica.RaftReplica
FOLLOWING = following.Following
LEADING = leading.Leading
GROUP = PySyncObjGroup
REPLICATOR = replicator.Replicator


_REPLICATION = "tests/unit/replication/"
_GROUP = _REPLICATION + "test_group.py::"
_TURNS = _REPLICATION + "view/test_turns.py::"
_EVERYTHING = tuple(
    f"{_REPLICATION}{name}.py"
    for name in (
        "raft/test_following",
        "election/test_timers",
        "test_group",
        "test_group_membership",
        "snapshot/test_transfer",
    )
)

_GUARDS: tuple[Mutant, ...] = (
    Mutant(
        "acknowledges-before-fsync",
        "D1 (H6)",
        "a follower acknowledges entries when they are on its disk",
        (
            Edit(
                FOLLOWING,
                "_answer_when_durable",
                "journal.when_durable(answer)",
                "kick(); answer()",
            ),
        ),
    ),
    Mutant(
        "counts-own-copy-early",
        "D1 (H6)",
        "a leader counts its own copy when it is on its disk",
        (
            Edit(
                REPLICATOR,
                "majority_durable_index",
                "min(self._log.durable_index, self._log.last_index)",
                "self._log.last_index",
            ),
        ),
        (_GROUP + "test_a_leader_does_not_count_its_own_copy_before_it_is_on_disk",),
    ),
    Mutant(
        "votes-before-fsync",
        "D3 (H6)",
        "a vote leaves when it is on disk",
        (Edit(REPLICA, "send_when_durable", "self.journal.when_durable(send)", "send()"),),
    ),
    Mutant(
        "believes-what-a-killed-process-wrote",
        "D2 (H6)",
        "what a killed process wrote is made durable before it is relied upon",
        (Edit(journal_repair, "repair", "if recovered.durable_to < end:", "if False:"),),
        (_REPLICATION + "journal/test_syncs.py",),
    ),
    Mutant(
        "does-not-write-again-after-a-failed-sync",
        "D6",
        "what a failed sync may have dropped is written again, not only synced again",
        (
            Edit(
                journal_worker.SegmentFiles,
                "secure",
                "storage.pwrite(handle, storage.pread(handle, end - begin, begin), begin)",
                "pass",
            ),
        ),
        (_REPLICATION + "journal/test_syncs.py",),
    ),
    Mutant(
        "believes-a-sync-after-a-failed-one",
        "D6",
        "a sync that failed breaks the journal for good",
        (Edit(journal_worker.Batch, "may_retry", " and is_full(self.error)", ""),),
        (_REPLICATION + "journal/test_journal.py",),
    ),
    Mutant(
        "a-hung-sync-stops-other-journals",
        "L21",
        "a journal whose sync hangs does not stop the other journals of its process",
        (
            Edit(
                journal_writers.WriterPool,
                "_help_if_late",
                "now - since >= LATE_MS / 1_000",
                "False",
            ),
        ),
        (_REPLICATION + "journal/test_writers.py",),
    ),
    Mutant(
        "works-of-a-journal-overlap",
        "D2 (H6)",
        "two threads run the works of one journal one after the other",
        (Edit(journal_writers.PooledRunner, "run_next", "with self._running:", "if True:"),),
        (_REPLICATION + "journal/test_writers.py",),
    ),
    Mutant(
        "slow-disks-are-written-by-one-thread",
        "L21",
        "journals on a slow disk are written at the same time",
        (Edit(journal_writers.WriterPool, "submit", "or self.is_disk_slow", ""),),
        (_REPLICATION + "journal/test_writers.py",),
    ),
    Mutant(
        "counts-what-was-cut-off",
        "D1 (H1)",
        "what was cut off while it was being synced does not count as durable",
        (
            Edit(
                journal_pending.PendingWrites,
                "forget_entries_behind",
                "self._in_flight.end = self._in_flight.end.lowered_to(index)",
                "pass",
            ),
        ),
        (_REPLICATION + "journal/test_journal.py", _REPLICATION + "journal/test_property.py"),
    ),
    Mutant(
        "acknowledges-to-a-deposed-leader",
        "L6 (H1)",
        "an acknowledgement that waited for the disk is not given in a later term",
        (
            Edit(
                FOLLOWING,
                "_answer_when_durable",
                "self._replica.stopped or self._replica.core.term != term",
                "self._replica.stopped",
            ),
        ),
        _EVERYTHING,
    ),
    Mutant(
        "resent-entries-truncate",
        "L6 (H1)",
        "entries that are there already cut nothing off",
        (
            Edit(append_rules, "follow_append", "log.term_of(index) == term", "False"),
            Edit(append_rules, "_cut_conflict", "index <= commit_index", "False"),
        ),
    ),
    Mutant(
        "truncates-what-is-committed",
        "L6 (H1)",
        "nothing at or below the commit index is cut off (a second line behind the others)",
        (Edit(append_rules, "_cut_conflict", "index <= commit_index", "False"),),
        (_REPLICATION + "raft/test_append_rules.py",),
    ),
    Mutant(
        "match-index-goes-back",
        "L6 (H1)",
        "what a follower has acknowledged is not forgotten in its term",
        (Edit(replicator.FollowerProgress, "matched", "max(self.match_index, index)", "index"),),
        (_REPLICATION + "raft/test_replicator.py",),
    ),
    Mutant(
        "believes-a-restarted-follower",
        "D1, L8",
        "what a follower acknowledged before it came back is asked for again",
        (
            Edit(
                REPLICATOR,
                "connected",
                "follower.start_over(self._log.last_index + 1)",
                "follower.restart_from(self._log.last_index + 1)",
            ),
        ),
        _EVERYTHING,
    ),
    Mutant(
        "leads-without-majority",
        "L2 (H7)",
        "a leader that hears no majority steps down",
        (
            Edit(
                LEADING,
                "heartbeat",
                "silent_ms > replica.config.leader_contact_ms_max",
                "False",
            ),
        ),
    ),
    Mutant(
        "reads-without-asking",
        "L2 (H7)",
        "a linearizable read waits until a majority has confirmed the leader",
        (
            Edit(
                REPLICA,
                "ask_read_index",
                "future = self.leadership.reads.ask(self.commit_index)",
                "future = self._loop.create_future(); future.set_result(self.commit_index)",
            ),
        ),
    ),
    Mutant(
        "reads-are-confirmed-by-earlier-heartbeats",
        "L2 (H7)",
        "a heartbeat confirms what was asked before it left, and a majority has to answer it",
        (
            Edit(
                REPLICA,
                "ask_read_index",
                "self.leadership.confirmed_at > asked_at",
                "self.leadership.reads.began_at(self.leadership.reads.round) > asked_at",
            ),
        ),
        (_GROUP + "test_a_leader_that_was_replaced_unknowingly_answers_no_read",),
    ),
    Mutant(
        "a-heartbeat-confirms-what-is-asked-later",
        "L2 (H7)",
        "a heartbeat confirms only what was asked before it left",
        (
            Edit(
                REPLICA,
                "ask_read_index",
                " and self.leadership.confirmed_at > asked_at",
                "",
            ),
        ),
        (_GROUP + "test_what_was_asked_before_a_heartbeat_needs_no_round",),
    ),
    Mutant(
        "reads-join-a-round-under-way",
        "L2 (H7)",
        "the round that confirms a read began after the read",
        (
            Edit(
                read_rounds.ReadRounds,
                "ask",
                "self._waiting.append(",
                "(self._asking or self._waiting).append(",
            ),
        ),
        (_REPLICATION + "raft/test_read_rounds.py",),
    ),
    Mutant(
        "decides-before-its-term-has-an-entry",
        "L1",
        "a leader decides and reads when an entry of its own term is committed and applied",
        (
            Edit(REPLICA, "is_ready_leader", "and self.commit_index >= leadership.first_index", ""),
            Edit(
                REPLICA,
                "is_ready_leader",
                "and self.applier.applied.index >= leadership.first_index",
                "",
            ),
        ),
    ),
    Mutant(
        "counts-entries-of-earlier-terms",
        "D1 (Raft paper, 5.4.2)",
        "an entry of an earlier term is committed with one of the leader's own only",
        (Edit(quorum, "next_commit_index", " or term_of(durable_index) != term", ""),),
        (_REPLICATION + "protocol/test_quorum.py",),
    ),
    Mutant(
        "campaigns-without-asking",
        "L7 (H8)",
        "a campaign follows a majority's pre-votes",
        (
            Edit(
                Election,
                "_start_pre_vote",
                "self._asked_term = self._core.term + 1",
                "return self._core.campaign(transfer=False)",
            ),
        ),
    ),
    Mutant(
        "pre-votes-against-a-living-leader",
        "L7 (H8)",
        "a follower that hears its leader grants no pre-vote",
        (Edit(Election, "on_pre_vote", "and not self.is_leader_alive", ""),),
    ),
    Mutant(
        "votes-against-a-living-leader",
        "L7 (H8)",
        "a follower that hears its leader grants no vote (a second line behind the pre-vote)",
        (
            Edit(
                REPLICA,
                "_on_request_vote",
                "(self.core.leads or self.election.is_leader_alive)",
                "False",
            ),
        ),
        (_REPLICATION + "election/test_timers.py",),
    ),
    Mutant(
        "counts-a-vote-twice",
        "L1",
        "a vote that arrives twice counts once",
        (Edit(HardenedSyncObj, "vote_received", " or sender in self._voters", ""),),
        (_REPLICATION + "test_pysyncobj_votes.py", _REPLICATION + "test_group_membership.py"),
    ),
    Mutant(
        "counts-votes-of-learners",
        "L11 (H12)",
        "votes of non-voters do not count",
        (
            Edit(
                HardenedSyncObj,
                "vote_received",
                "sender not in self._configuration().voters",
                "False",
            ),
        ),
        (_REPLICATION + "test_pysyncobj_votes.py",),
    ),
    Mutant(
        "votes-while-unverified",
        "D4, L8",
        "a replica that lost a part of its log does not vote",
        (Edit(REPLICA, "_may_vote", "not self.journal.unverified_index and ", ""),),
        (_GROUP + "test_an_unverified_replica_does_not_vote",),
    ),
    Mutant(
        "campaigns-while-unverified",
        "D4, L8",
        "a replica that lost a part of its log does not campaign",
        (Edit(REPLICA, "_may_campaign", "and not self.journal.unverified_index", ""),),
        (_GROUP + "test_a_replica_that_lost_its_disk_votes_only_after_a_leader_has_covered_it",),
    ),
    Mutant(
        "trusts-itself-too-early",
        "D4, L8",
        "a replica is unverified until a leader has covered what it may have promised",
        (Edit(FOLLOWING, "_verify_if_covered", "agreed >= unverified or proven", "True"),),
        _EVERYTHING,
    ),
    Mutant(
        "forgets-that-it-was-a-member",
        "L8, L14 (H12)",
        "a former member that comes back empty does not vote before it is covered",
        (Edit(raft_host.PySyncObjHost, "_open_files", "rejoining or was_member", "rejoining"),),
        (
            _REPLICATION + "test_group_learners.py",
            _REPLICATION + "test_group_removal.py",
        ),
    ),
    Mutant(
        "campaigns-without-a-view",
        "D9 (H4)",
        "a replica whose view ends before its log begins does not lead",
        (
            Edit(
                REPLICA,
                "_may_campaign",
                "(self.installing or self.applier.awaits_snapshot)",
                "self.installing",
            ),
        ),
        (_REPLICATION + "test_group.py",),
    ),
    Mutant(
        "asks-for-no-snapshot",
        "D9 (H4)",
        "a replica whose view ends before its log begins asks the leader for a snapshot",
        (
            Edit(
                FOLLOWING,
                "_answer_of",
                "if self._replica.applier.awaits_snapshot:",
                "if False:",
            ),
        ),
        (_REPLICATION + "test_group.py",),
    ),
    Mutant(
        "cuts-the-log-before-the-view-has-it",
        "D9 (H4)",
        "the log is cut only behind a view that is on disk",
        (
            Edit(
                snapshot_transfer.SnapshotTransfer,
                "compact",
                "await self._blocking(self._state_machine.make_durable)",
                "self._state_machine.applied()",
            ),
        ),
    ),
    Mutant(
        "leaves-a-torn-tail",
        "D4 (H5)",
        "a torn tail is cleared before anything is written behind it",
        (Edit(journal_repair, "repair", "recovery.outcome is Outcome.TORN_TAIL", "False"),),
        (_REPLICATION + "journal/test_syncs.py",),
    ),
    Mutant(
        "view-ahead-of-the-log",
        "D8 (H5)",
        "a log that ends before its view goes on behind the view",
        (
            Edit(
                view_join,
                "join_view",
                "applied.index > journal.last_index or "
                "journal.term_of(applied.index) != applied.term",
                "False",
            ),
        ),
        (
            _REPLICATION + "test_group_configuration_recovery.py",
            _REPLICATION + "test_crash_everywhere.py",
        ),
    ),
    Mutant(
        "view-errors-are-passed-over",
        "D8 (H3)",
        "a view that cannot follow its log stops its replica",
        (Edit(applier.Applier, "_run", "self._on_broken(error)", "pass"),),
        (_GROUP + "test_a_view_that_cannot_follow_its_log_stops_its_replica_and_no_other",),
    ),
    Mutant(
        "a-hanging-view-holds-up-the-others",
        "L25",
        "a batch that waited for long gets another thread",
        (Edit(ViewTurns, "_watch", "self._overdue is None and self._waiting", "False"),),
        (_TURNS + "test_a_view_that_hangs_holds_up_no_other",),
    ),
    Mutant(
        "awaited-batches-take-their-turn",
        "L25",
        "a batch that a caller waits for goes first",
        (Edit(ViewTurns, "_next_turn", "if each.is_awaited()", "if False"),),
        (_TURNS + "test_awaited_work_goes_first",),
    ),
    Mutant(
        "a-cancelled-caller-frees-its-thread",
        "L25",
        "a thread is given to the next batch when it is free",
        (
            Edit(
                ViewTurns,
                "run",
                "await asyncio.shield(running)",
                "await running",
            ),
        ),
        (_TURNS + "test_a_thread_is_busy_until_its_work_ends_though_nobody_waits_for_it",),
    ),
    Mutant(
        "full-batches-wait",
        "L25",
        "a view that lacks much does not wait",
        (Edit(applier.Applier, "_due_s", "waiting >= APPLY_AT_ONCE_EVENTS", "False"),),
        (
            _REPLICATION
            + "raft/test_applier.py::test_apply_at_once_events_do_not_wait_and_one_less_does",
        ),
    ),
    Mutant(
        "loses-a-proposal-definitely",
        "L3",
        "what was in flight when leadership moved is answered as indefinite",
        (Edit(group_commit.GroupCommit, "fail", "ProposalLost(", "Overloaded("),),
    ),
    Mutant(
        "keeps-a-configuration-that-was-cut-off",
        "L11 (H12)",
        "a configuration falls with its entry",
        (
            Edit(
                membership.ConfigurationHistory,
                "truncate_from",
                " if item.index < index",
                "",
            ),
        ),
        (_REPLICATION + "test_group_membership.py", _REPLICATION + "protocol/test_membership.py"),
    ),
    Mutant(
        "changes-members-before-its-term-has-an-entry",
        "L12 (H12)",
        "members change when the leader has committed an entry of its term",
        (
            Edit(
                LEADING,
                "change_members",
                "max(present.index, leadership.first_index)",
                "present.index",
            ),
        ),
        (_REPLICATION + "test_group_membership.py",),
    ),
    Mutant(
        "changes-members-twice-at-once",
        "L12 (H12)",
        "one change of members at a time",
        (
            Edit(
                LEADING,
                "change_members",
                "max(present.index, leadership.first_index)",
                "leadership.first_index",
            ),
        ),
        (_REPLICATION + "test_group_membership.py",),
    ),
    Mutant(
        "counts-learners",
        "L11 (H12)",
        "learners are not counted",
        (
            Edit(
                REPLICATOR,
                "_take_over",
                "for v in configuration.voters if",
                "for v in members if",
            ),
        ),
        (_REPLICATION + "raft/test_replicator_members.py",),
    ),
    Mutant(
        "counts-itself-when-removed",
        "L11 (H12)",
        "a leader counts itself only while it is a voter",
        (Edit(REPLICATOR, "_reached_by_majority", "if self._counts_itself:", "if True:"),),
        (_REPLICATION + "raft/test_replicator_members.py",),
    ),
    Mutant(
        "sends-a-removal-before-its-commit",
        "L17",
        "a removed voter gets committed entries only",
        (
            Edit(
                REPLICATOR,
                "send_entries",
                "self._log.last_index if follower.removed_at is None else commit_index",
                "self._log.last_index",
            ),
        ),
        (_REPLICATION + "raft/test_replicator_members.py",),
    ),
    Mutant(
        "configuration-holds-from-commit",
        "L11 (H12)",
        "a configuration holds from its append on",
        (
            Edit(
                REPLICA,
                "configuration",
                "self.journal.configuration or",
                "self.journal.configuration_at(self.commit_index) or",
            ),
        ),
        (_REPLICATION + "test_group_membership.py",),
    ),
    Mutant(
        "snapshot-without-configuration",
        "L13 (H12)",
        "a snapshot brings the configuration of its point along",
        (
            Edit(
                REPLICA,
                "expect_snapshot",
                "self.journal.learn_configuration(configuration, index=point.index)",
                "pass",
            ),
        ),
        (_REPLICATION + "test_group_configuration_recovery.py",),
    ),
    Mutant(
        "writes-what-one-member-knows",
        "R1",
        "a leader writes events of a level that all members are known to know",
        (Edit(GROUP, "event_level", "return min(", "return max("),),
        (_REPLICATION + "mesh/test_event_levels.py",),
    ),
    Mutant(
        "changes-members-for-one-who-cannot-read-it",
        "R1",
        "members change only once all that stay are known to read such entries",
        (Edit(GROUP, "change_members", "if staying:", "if False:"),),
        (_REPLICATION + "mesh/test_event_levels.py",),
    ),
    Mutant(
        "writes-over-a-draft",
        "R3",
        "what a crash left of a small file is no part of the next one",
        (Edit(storage, "replace_content", "storage.unlink(draft)", "pass"),),
        ("tests/unit/storage/test_checked_file.py",),
    ),
    Mutant(
        "trusts-a-directory-that-it-finds",
        "D2",
        "a directory whose making was interrupted is synced by the next call",
        (
            Edit(
                storage,
                "make_directory_durably",
                "storage.sync_directory(path.parent, label=label)",
                "pass",
            ),
        ),
        ("tests/unit/storage/test_disk.py",),
    ),
    Mutant(
        "runs-by-the-clock",
        "(H9)",
        "the engine runs when something happened, not with the next tick",
        (
            Edit(
                REPLICA,
                "kick",
                "self._loop.call_soon(self._run_guarded)",
                "self._loop.call_later(0.1, self._run_guarded)",
            ),
        ),
        (_GROUP + "test_an_acknowledgement_does_not_wait_for_any_view",),
    ),
    Mutant(
        "takes-any-version-of-the-library",
        "L4 (H11)",
        "only the pinned library with the expected members is run",
        (
            Edit(pysyncobj_check, "check_library", "found != LIBRARY_VERSION", "False"),
            Edit(pysyncobj_check, "check_library", "if problems:", "if False:"),
        ),
        (_REPLICATION + "election/test_library_check.py",),
    ),
)

MUTANTS = tuple(replace(mutant, seeds=(("engine", 40),)) for mutant in _GUARDS)
