"""The guards of what operators do to topics: deletion, rest, growth, termination, pins."""

from __future__ import annotations

from brokers.adapters.ledger.format.files import UnitDirectory
from brokers.adapters.ledger.ownership.takeover import Takeover
from brokers.service.topics.open_topics import Topics
from brokers.service.topics.termination import Termination
from discovery.service.admin.grown_topics import GrownTopics
from discovery.service.admin.topic_deletion import TopicDeletion
from shards.domain import topic
from shards.inventory import topic_deletion
from shards.inventory.forced_deletions import ForcedDeletions
from shards.inventory.placement_check import PlacementCheck
from shards.moves.move_finisher import MoveFinisher
from tests.simulation.mutants.mutant import Edit, Mutant

_DELETION = ("tests/unit/shards/inventory/test_topic_deletion.py",)
_OWNERS = ("tests/unit/discovery/service/admin/test_topic_deletion.py",)
_END = ("tests/unit/brokers/service/topics/test_end_unit.py",)
_GROWTH = ("tests/unit/discovery/service/admin/test_grown_topics.py",)
_TERMINATION = (
    "tests/unit/brokers/service/topics/test_termination.py",
    "tests/unit/brokers/ledger/test_durable_termination.py",
)
_RULES = ("tests/unit/shards/inventory/test_placement_check.py",)

MUTANTS = (
    Mutant(
        "deletes-units-that-were-assigned-meanwhile",
        "M9",
        "a topic is deleted when every unit is in the epoch that its owner has ended",
        (
            Edit(
                topic_deletion,
                "_check_ended",
                "if not each.is_assigned or ended.get(each.unit) != each.epoch:",
                "if False:",
            ),
        ),
        _DELETION,
        (("cluster", 3),),
    ),
    Mutant(
        "deletes-a-namesake",
        "M9",
        "a deletion whose owners ended one topic deletes no other of its name",
        (
            Edit(
                topic_deletion,
                "_check_ended",
                "if body.topic_id and body.topic_id != topic_id:",
                "if False:",
            ),
        ),
        _DELETION,
    ),
    Mutant(
        "deletes-with-one-attempt",
        "M9",
        "owners are asked when the shard finds a unit that none has ended",
        (
            Edit(
                TopicDeletion,
                "delete",
                "refused.code != RejectionCode.STALE_EPOCH or self._owners is None",
                "True",
            ),
        ),
        _OWNERS,
    ),
    Mutant(
        "ends-units-in-use",
        "M9",
        "an owner ends a unit with clients or subscriptions by force only",
        (Edit(Topics, "end_assigned", "if use and not is_forced:", "if False:"),),
        _END,
        (("cluster", 3),),
    ),
    Mutant(
        "opens-units-that-ended",
        "M9",
        "an owner opens no unit again in an epoch that it ended for a deletion",
        (
            Edit(
                Topics,
                "_open_locked",
                "if self._has_ended(assignment.key, assignment.epoch):",
                "if False:",
            ),
        ),
        _END,
    ),
    Mutant(
        "leaves-ended-units-unserved",
        "M9",
        "a topic that was not deleted after all is served in a later epoch",
        (
            Edit(
                Topics,
                "_leave_ended",
                "asyncio.get_running_loop().time() - ended_at >= ENDED_UNIT_PAUSE_MS / 1_000",
                "False",
            ),
        ),
        _END,
    ),
    Mutant(
        "creates-names-that-rest",
        "M10",
        "a name is not created on demand at once if its deletion was forced",
        (Edit(ForcedDeletions, "check", "until is None or until <= self._monotonic()", "True"),),
        _DELETION,
        (("cluster", 6),),
    ),
    Mutant(
        "forgets-under-the-next-leader-what-rests",
        "M10",
        "a new leader reads which names rest",
        (Edit(ForcedDeletions, "_recover", "if until <= self._monotonic():", "if True:"),),
        _DELETION,
    ),
    Mutant(
        "names-rest-for-ever",
        "M10",
        "a name rests for its pause and no longer",
        (
            Edit(
                ForcedDeletions,
                "check",
                "until is None or until <= self._monotonic()",
                "until is None",
            ),
        ),
        _DELETION,
    ),
    Mutant(
        "takes-partitions-away",
        "A21",
        "the number of a topic's partitions only grows",
        (Edit(topic, "_decide_grow", "if wanted < present:", "if False:"),),
        ("tests/unit/shards/domain/test_topic.py",),
    ),
    Mutant(
        "grows-without-subscriptions",
        "A22",
        "new partitions get the durable subscriptions of the first",
        (
            Edit(
                GrownTopics,
                "copy_subscriptions",
                "if not await self._was_served",
                "if await self._was_served",
            ),
        ),
        _GROWTH,
        (("cluster", 3),),
    ),
    Mutant(
        "says-that-a-committed-growth-did-not-happen",
        "A22",
        "behind the commit of a growth no error is definite",
        (
            Edit(
                GrownTopics,
                "copy_subscriptions",
                "if isinstance(error, Refused) and error.code == RejectionCode.NOT_FOUND:",
                "if True:",
            ),
        ),
        _GROWTH,
        (("cluster", 3),),
    ),
    Mutant(
        "forgets-a-termination",
        "B13",
        "a termination holds for every later owner",
        (Edit(Termination, "__init__", "if self.is_over:", "if False:"),),
        _TERMINATION,
        (("cluster", 3),),
    ),
    Mutant(
        "answers-a-termination-before-it-is-durable",
        "B13",
        "a termination is durable before it is answered",
        (Edit(Termination, "_end", 'await self._ledger.put_state(TERMINATED_KEY, b"")', "pass"),),
        _TERMINATION,
        (("cluster", 3),),
    ),
    Mutant(
        "opens-what-was-removed",
        "B15",
        "nobody claims a unit that was removed with its topic, in that generation or before",
        (
            Edit(
                Takeover,
                "_check_removed",
                "generation_of(self._epoch) <= removed",
                "False",
            ),
        ),
        ("tests/unit/brokers/ledger/test_removal.py",),
        (("cluster", 6),),
    ),
    Mutant(
        "removes-before-the-mark-is-durable",
        "B15",
        "the mark of a removed unit is durable before its claims go",
        (Edit(UnitDirectory, "_mark_removed", "self.sync_above()", "pass"),),
        ("tests/unit/brokers/ledger/test_removal.py",),
    ),
    Mutant(
        "a-deletion-ends-only-the-epochs-that-its-leader-knows",
        "B15",
        "a deletion ends every epoch that lost replicas may have given",
        (
            Edit(
                MoveFinisher,
                "_ended_for_good",
                "max(ended.epoch, self._state.least_epoch)",
                "ended.epoch",
            ),
        ),
        ("tests/unit/shards/moves/test_deleted_units.py",),
    ),
    Mutant(
        "removes-before-the-generation-of-the-mark-is-durable",
        "B15",
        "a mark's generation is durable before the claims of that generation go",
        (
            Edit(
                UnitDirectory,
                "_mark_removed",
                "sync_file(self.storage, mark, label=MARK_LABEL)",
                "pass",
            ),
        ),
        ("tests/unit/brokers/ledger/test_removal.py",),
    ),
    Mutant(
        "removes-what-a-restored-cluster-has-claimed",
        "B15",
        "a late removal spares a unit that is claimed in a later generation",
        (Edit(UnitDirectory, "_is_claimed_after", "> generation", "> GENERATIONS_MAX"),),
        ("tests/unit/brokers/ledger/test_removal.py",),
    ),
    Mutant(
        "removes-files-of-a-later-generation",
        "B15",
        "a removal takes only files of its own generation and before",
        (
            Edit(
                UnitDirectory,
                "remove",
                "if generation_of(_epoch_of(name)) <= generation:",
                "if True:",
            ),
        ),
        ("tests/unit/brokers/ledger/test_removal.py",),
    ),
    Mutant(
        "drops-claims-before-the-mark-is-durable",
        "B15",
        "an owner that finishes a removal makes its mark durable first",
        (Edit(UnitDirectory, "drop_removed", "self._mark_removed(generation)", "pass"),),
        ("tests/unit/brokers/ledger/test_removal.py",),
    ),
    Mutant(
        "takes-over-what-is-being-removed",
        "B15",
        "an owner that finds the mark of an earlier generation takes over nothing of it",
        (Edit(Takeover, "_claim", "if removed is not None:", "if False:"),),
        ("tests/unit/brokers/ledger/test_removal.py",),
    ),
    Mutant(
        "removes-messages-of-topics-that-are-there",
        "B15",
        "messages are removed when the deletion of their topic is committed",
        (Edit(Topics, "released", "if release.is_deleted:", "if True:"),),
        ("tests/unit/brokers/service/topics/test_deleted_topics.py",),
        (("cluster", 2),),
    ),
    Mutant(
        "pins-to-brokers-that-never-were",
        "PL8",
        "no rule is stored that pins to a broker that the cluster never had",
        (Edit(PlacementCheck, "unknown_broker", "if not unknown:", "if True:"),),
        _RULES,
    ),
    Mutant(
        "leaves-a-served-topic-no-broker",
        "PL8",
        "no rule is stored that leaves a served topic no live broker",
        (
            Edit(
                PlacementCheck, "no_broker_left", "if not isinstance(places, Rejected):", "if True:"
            ),
        ),
        _RULES,
    ),
)
