"""Faults that were found by reading and not by a simulation, put back: the nets must find them."""

from __future__ import annotations

from brokers.service.topics.higher_epochs import HigherEpochs
from discovery.adapters.shard_changes.leased_assignments import LeasedAssignments
from discovery.service.admin.inventory import InventoryService
from discovery.service.lookups.lookup import LookupService
from discovery.service.lookups.shard_lookups import _Flight
from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.replication.election.term_probe import TermProbe
from nextgen.replication.election.timers import Election
from nextgen.replication.host.raft_host import PySyncObjHost
from nextgen.replication.journal import repair as journal_repair
from nextgen.replication.raft.replica import RaftReplica
from nextgen.tasks import background
from nextgen.tasks.timeouts import Timeout
from shards.adapters.raft_groups import RaftGroups
from shards.domain import assignment
from shards.moves.move_finisher import MoveFinisher
from shards.sessions.broker_manager import BrokerManager
from shards.sessions.home_watch import HomeWatch
from shards.state.outcome_retention import OutcomeRetention
from shards.watches.change_lease import LeasedWatch
from shards.watches.effective_writes import EffectiveWrites
from tests.simulation.mutants.mutant import Edit, Mutant

_ELECTION = ("tests/unit/replication/test_election_time.py",)
_FRESHNESS = ("tests/unit/discovery/service/test_lookup_freshness.py",)
_ISSUED = (
    "tests/unit/client/discovery/test_issued.py",
    "tests/unit/discovery/service/test_repeated_elsewhere.py",
)
_TASKS = ("tests/unit/tasks/test_background.py",)
_PROBE = (
    "tests/unit/replication/test_interrupted_rejoin.py",
    "tests/unit/replication/election/test_term_probe.py",
)
_RETURNING = (
    "tests/unit/shards/watches/test_effective_writes.py",
    "tests/unit/shards/watches/test_returning_managers.py",
)

MUTANTS = (
    Mutant(
        "deposed-manager-acknowledges",
        "PO4",
        "a broker manager acknowledges nothing any more when its leadership ends",
        (
            Edit(HomeWatch, "close", "self.stream.acknowledge_with(lambda _position: 0)", "pass"),
            Edit(HomeWatch, "close", "self.stream.complete_with(lambda: 0)", "pass"),
        ),
        ("tests/unit/shards/sessions/test_pending_deliveries.py",),
        (("cluster", 8),),
    ),
    Mutant(
        "forgets-a-lost-disk-when-its-start-was-interrupted",
        "L8",
        "that a replica was here before does not rest on what a start has left behind",
        (
            Edit(
                RaftGroups,
                "open",
                "rejoining=may_be_lost",
                "rejoining=may_be_lost and not self._storage.is_directory(directory)",
            ),
        ),
        ("tests/unit/shards/adapters/test_raft_groups.py",),
    ),
    Mutant(
        "takes-an-empty-disk-for-a-new-group",
        "L8, L14",
        "a replica without a journal asks its peers whether it ever had one",
        (Edit(PySyncObjHost, "_open_files", "BLANK_INDEX if is_founding else 0", "0"),),
        _PROBE,
        (("engine", 40),),
    ),
    Mutant(
        "acknowledges-in-a-term-that-it-forgot",
        "L8",
        "a replica that lost its term follows no leader before it adopted the others' highest",
        (
            Edit(
                TermProbe,
                "is_open",
                "return self._replica.node_id in self._configuration.voters",
                "return False",
            ),
        ),
        _PROBE,
        (("engine", 40),),
    ),
    Mutant(
        "adopts-a-term-before-all-have-answered",
        "L8",
        "every other voter tells its term before one is adopted",
        (Edit(TermProbe, "_conclude", "len(answers) < len(others) or not others", "not answers"),),
        _PROBE,
        (("engine", 40),),
    ),
    Mutant(
        "adopts-a-term-that-a-majority-forgot",
        "L8",
        "enough of those that answer still know their terms",
        (Edit(TermProbe, "_conclude", "known < voters - majority_of(voters) + 1", "False"),),
        _PROBE,
        (("engine", 40),),
    ),
    Mutant(
        "believes-the-mark-of-a-rotten-tail",
        "D4",
        "damage in a tail is of unknown extent, whatever the mark says",
        (
            Edit(
                journal_repair,
                "repair",
                "state.unverified_index = UNKNOWN_INDEX",
                "state.unverified_index = max(state.unverified_index, recovery.old_last_index, 1)",
            ),
        ),
        ("tests/unit/replication/journal/test_recovery.py",),
        (("engine", 40),),
    ),
    Mutant(
        "campaigns-as-before-the-bound",
        "L21",
        "elections end though a voter's disk hangs: the four guards below, which stand in for each "
        "other, removed together",
        (
            Edit(
                Election,
                "_campaign",
                "min(2 * timeout_ms, self._config.election_ms_max)",
                "2 * timeout_ms",
            ),
            Edit(Election, "on_pre_vote", " or self._is_behind(message)", ""),
            Edit(Election, "on_pre_vote", "and not self._is_disk_stuck()", ""),
            Edit(RaftReplica, "_may_campaign", "and not self._is_disk_stuck()", ""),
        ),
        _ELECTION,
        (("engine", 12),),
    ),
    Mutant(
        "backs-off-without-bound",
        "L21",
        "a voter refuses pre-votes for the longest election timeout at most",
        (
            Edit(
                Election,
                "_campaign",
                "min(2 * timeout_ms, self._config.election_ms_max)",
                "2 * timeout_ms",
            ),
        ),
        _ELECTION,
        (("engine", 40),),
    ),
    Mutant(
        "backs-off-from-a-better-log",
        "L21",
        "a candidate whose log is better, and which alone may be able to win, is not put off",
        (Edit(Election, "on_pre_vote", " or self._is_behind(message)", ""),),
        _ELECTION,
        (("engine", 40),),
    ),
    Mutant(
        "promises-votes-on-a-stuck-disk",
        "L21",
        "a replica whose disk is stuck promises no vote that it could not write down",
        (Edit(Election, "on_pre_vote", "and not self._is_disk_stuck()", ""),),
        _ELECTION,
        (("engine", 40),),
    ),
    Mutant(
        "campaigns-on-a-stuck-disk",
        "L21",
        "a replica whose disk is stuck does not campaign",
        (Edit(RaftReplica, "_may_campaign", "and not self._is_disk_stuck()", ""),),
        _ELECTION,
        (("engine", 40),),
    ),
    Mutant(
        "lease-is-confirmed-by-heartbeats-before-its-question",
        "A11",
        "a heartbeat prolongs a lease only if it left after the subscriber's question came",
        (Edit(LeasedWatch, "_confirm", "asked_at=self._asked_at)", "asked_at=0.0)"),),
        ("tests/unit/shards/watches/test_change_lease.py",),
    ),
    Mutant(
        "lease-is-prolonged-by-a-partial-page",
        "A11",
        "only an update that reaches the position of a confirmation prolongs",
        (
            Edit(
                LeasedWatch,
                "_complete",
                "self._unreached and self._unreached[0][0] <= update.position",
                "self._unreached",
            ),
        ),
        (
            "tests/unit/shards/watches/test_leased_watch.py",
            "tests/unit/shards/watches/test_change_lease.py",
        ),
        (("cluster", 40),),
    ),
    Mutant(
        "discovery-answers-for-20-s-too-long",
        "A5, L19",
        "an answer is given for one time-to-live from the question on",
        (
            Edit(
                LeasedAssignments,
                "_renew",
                "min(max(0, ttl_ms - WATCH_TTL_MARGIN_MS), LOOKUP_STALENESS_MS_MAX)",
                "ttl_ms + 20_000",
            ),
        ),
        ("tests/unit/discovery/adapters/test_leased_assignments.py",),
        (("cluster", 40),),
    ),
    Mutant(
        "lookups-join-a-question-of-any-age",
        "A12",
        "a lookup joins no question that was sent before an answer may be",
        (Edit(_Flight, "may_be_joined", "now - sent_at <= _STALENESS_S", "True"),),
        _FRESHNESS,
        (("cluster", 12),),
    ),
    Mutant(
        "fresh-lookups-join-what-was-sent",
        "A14",
        "a fresh lookup is answered by a question that was sent behind its beginning",
        (Edit(_Flight, "may_be_joined", "not is_fresh and ", ""),),
        _FRESHNESS,
        (("cluster", 12),),
    ),
    Mutant(
        "fresh-lookups-take-what-is-cached",
        "A14",
        "a fresh lookup is not answered from the cache",
        (Edit(LookupService, "_take_out", "if request.fresh:", "if False:"),),
        _FRESHNESS,
        (("cluster", 12),),
    ),
    Mutant(
        "lookups-take-an-earlier-epoch-than-demanded",
        "A14",
        "an answer of an earlier epoch than is demanded is asked for",
        (
            Edit(
                LookupService, "_take_out", "decoded_answer(answers[place]).epoch < epoch", "False"
            ),
        ),
        _FRESHNESS,
    ),
    Mutant(
        "lookups-go-back-by-a-late-answer",
        "A13",
        "an early answer that arrives last is not given",
        (Edit(_Flight, "settle", "flight.older, flight = None, flight.older", "flight = None"),),
        _FRESHNESS,
        (("cluster", 12),),
    ),
    Mutant(
        "effective-without-managers-that-return",
        "PO5",
        "a new leader waits for the broker manager of every shard",
        (Edit(EffectiveWrites, "_is_effective", " or not self.returning.are_back(now)", ""),),
        _RETURNING,
        (("cluster", 40),),
    ),
    Mutant(
        "managers-take-what-a-former-leader-sent",
        "PO10",
        "a broker manager takes no assignment of a former leader of the home shard",
        (
            Edit(
                BrokerManager,
                "_check_term",
                "request.term < (known := self.metadata.term_of(shard_id))",
                "(known := self.metadata.term_of(shard_id)) < 0",
            ),
        ),
        ("tests/unit/shards/sessions/test_broker_manager.py",),
        (("cluster", 12),),
    ),
    Mutant(
        "commands-are-issued-by-the-node-that-is-asked",
        "C6",
        "a command is sent with the positions that its client read before its first attempt",
        (Edit(InventoryService, "_request", "if not write.issued:", "if True:"),),
        _ISSUED,
        (("cluster", 40),),
    ),
    Mutant(
        "commands-are-issued-anew-with-each-attempt",
        "C6",
        "an attempt behind one that may have been carried out keeps its positions",
        (Edit(DiscoveryNodes, "_call", "if is_new and not was_indefinite:", "if True:"),),
        _ISSUED,
    ),
    Mutant(
        "outcomes-are-kept-by-count-alone",
        "C6",
        "outcomes are kept for longer than any client repeats a command",
        (
            Edit(
                OutcomeRetention,
                "order",
                "min(aged, position - OUTCOME_WINDOW_POSITIONS + 1)",
                "position - OUTCOME_WINDOW_POSITIONS + 1",
            ),
        ),
        ("tests/unit/shards/state/test_outcome_retention.py",),
    ),
    Mutant(
        "timeouts-take-an-old-cancellation-for-their-own",
        "T1",
        "a timeout that expires ends its block and not its task, whatever was cancelled before",
        (
            Edit(
                Timeout,
                "__aexit__",
                "and cancel_requests() <= self._cancel_requests",
                "and cancel_requests() == 0",
            ),
        ),
        ("tests/unit/tasks/test_timeouts.py",),
    ),
    Mutant(
        "kept-work-ends-by-a-cancellation-of-nobody",
        "T2",
        "work that must go on begins again, whatever ended it but its owner",
        (
            Edit(
                background, "_keep", "keeper.cancelling() > requests or not attempt.done()", "True"
            ),
        ),
        _TASKS,
    ),
    Mutant(
        "kept-work-ends-by-an-error",
        "T2",
        "work that must go on begins again behind an error",
        (Edit(background, "_keep", "        failure = error\n", "        raise\n"),),
        _TASKS,
    ),
    Mutant(
        "kept-work-outlives-its-owner",
        "T2",
        "a cancellation of the owner's ends kept work",
        (
            Edit(
                background,
                "_keep",
                "raise asyncio.CancelledError from failure",
                "pass",
            ),
        ),
        _TASKS,
    ),
    Mutant(
        "tasks-fail-unnoticed",
        "T2",
        "a task that fails is logged and counted",
        (Edit(background, "start", "report(name, error)", "pass"),),
        _TASKS,
    ),
    Mutant(
        "finishes-moves-by-assignments-that-are-not-committed",
        "A20",
        "a new leader hands over and releases units only by assignments that are committed",
        (Edit(MoveFinisher, "_recover_recent", "await self._proposer.confirm()", "pass"),),
        ("tests/unit/shards/moves/test_move_finisher.py",),
    ),
    Mutant(
        "leaves-a-topic-whose-epoch-was-used-unserved",
        "A3",
        "an owner whose epoch was used before requests a higher one",
        (Edit(HigherEpochs, "ask", "if used_epoch < assignment.epoch:", "if True:"),),
        ("tests/unit/brokers/service/topics/test_open_topics.py",),
    ),
    Mutant(
        "raises-the-epoch-of-an-owner-that-was-replaced",
        "A3",
        "an epoch is raised while the very assignment that was fenced holds",
        (Edit(assignment, "_decide_raise", "before != command.fenced_epoch or ", ""),),
        ("tests/unit/shards/domain/test_assignment.py",),
    ),
    Mutant(
        "raises-an-epoch-by-any-number",
        "A3",
        "a jump is bounded, so that one implausible number cannot use all epochs up",
        (Edit(assignment, "_decide_raise", "used - before > EPOCH_JUMP_MAX", "False"),),
        ("tests/unit/shards/domain/test_assignment.py",),
    ),
)
