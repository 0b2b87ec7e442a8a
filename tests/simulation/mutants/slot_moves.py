"""The guards of moves of slots: one owner, no row lost, one end."""

from __future__ import annotations

from cluster_manager.domain.slot_moves import moves
from nextgen.client.routing.router import ShardRouter
from nextgen.client.scalable_topics import attached
from nextgen.client.scalable_topics.shared_layout import SharedLayout
from shards.assignment.lease_table import GivenUnits, LeaseTable
from shards.domain.shard import Shard
from shards.domain.slot_moves import decider, steps
from shards.inventory.service import InventoryService
from shards.projections.foreign import ForeignSlots
from shards.scalable.attachments import Attachments
from shards.sessions.broker_manager import BrokerManager
from shards.slots import unit_counts
from shards.slots.slot_copy import SlotCopy
from shards.slots.slot_keeper import SlotKeeper
from shards.slots.slot_source import SlotSource
from shards.slots.touched_keys import TouchedScan
from shards.state.proposer import Proposer
from shards.state.state_scans import StateScans
from tests.simulation.mutants.mutant import Edit, Mutant

_DOMAIN = ("tests/unit/shards/domain/test_slot_moves.py",)
_RUNS = ("tests/simulation/test_slot_moves.py",)
_SLOTS = ("tests/unit/shards/state/test_shard_slots.py",)
_LEASES = ("tests/unit/shards/assignment/test_lease_table.py",)
_ATTACHMENTS = ("tests/unit/shards/scalable/test_attachments.py",)
_CONSUMERS = ("tests/unit/client/scalable_topics/test_consumers.py",)
_SHARED = ("tests/unit/client/scalable_topics/test_shared_layouts.py",)
_ROUTING = ("tests/integration/client/test_moved_slots.py",)
_SOURCE = ("tests/unit/shards/slots/test_slot_source.py",)

MUTANTS = (
    Mutant(
        "adopts-without-a-release",
        "SM1",
        "slots are adopted only behind their committed release",
        (
            Edit(
                SlotCopy,
                "_adopt",
                "answer = await self._ask_release(request)",
                "answer = ReleaseSlotsResponse(from_position=incoming.tail_position + 1)",
            ),
        ),
        _RUNS,
    ),
    Mutant(
        "decides-about-slots-of-another-shard",
        "SM1",
        "a shard's log takes no decision about slots that the shard does not have",
        (
            Edit(
                Proposer,
                "_check_slots",
                "self._slots.check_all(map(slot_of, events))",
                "pass",
            ),
        ),
        _RUNS,
    ),
    Mutant(
        "reclaims-without-a-refusal",
        "SM1",
        "slots are reclaimed only behind the target's committed refusal",
        (
            Edit(
                steps,
                "_source_step",
                "if move.phase is MovePhase.REFUSED and",
                "if move.phase in (MovePhase.STOPPING, MovePhase.REFUSED) and",
            ),
        ),
        _RUNS,
    ),
    Mutant(
        "releases-for-a-move-that-is-over",
        "SM4",
        "a delayed request releases nothing for a move that was taken back",
        (
            Edit(decider, "_is_free", "if move_id <= shard.settled_move_id:", "if False:"),
            Edit(SlotSource, "_check_has", "if move_id <= own.settled_move_id:", "if False:"),
        ),
        _RUNS,
    ),
    Mutant(
        "leaves-moves-whose-record-was-lost",
        "PS9",
        "shards describe moves that a recovered cluster manager has lost",
        (
            Edit(
                SlotKeeper,
                "_approach",
                "await self._describe_unrecorded()",
                "pass",
            ),
        ),
        _RUNS,
    ),
    Mutant(
        "leaves-slots-where-a-lost-adoption-found-them",
        "PS9",
        "an adoption is described as long as the map gives its slots to another shard",
        (
            Edit(
                steps,
                "unrecorded",
                "if lost and came.move_id not in recorded:",
                "if False:",
            ),
        ),
        _RUNS,
    ),
    Mutant(
        "records-a-finished-move-again",
        "PS9",
        "a move that finished and was forgotten is not recorded again",
        (
            Edit(
                moves,
                "_decide_unrecorded",
                "if generation_of(command.move_id) >= generation_of(state.next_id):",
                "if False:",
            ),
        ),
        ("tests/unit/cluster_manager/domain/slot_moves/test_slot_moves.py",),
    ),
    Mutant(
        "adopts-what-was-refused",
        "SM4",
        "a move that was refused is not adopted",
        (
            Edit(
                decider,
                "_adopt",
                "if incoming is None or incoming.is_refused:",
                "if incoming is None:",
            ),
        ),
        _DOMAIN,
    ),
    Mutant(
        "loses-what-changed-last",
        "SM3",
        "what changed between the copy and the release comes with the adoption",
        (Edit(SlotCopy, "_adopt", "rows = self._rows(answer.rows)", "rows = ()"),),
        _RUNS,
    ),
    Mutant(
        "keeps-units-of-deleted-topics",
        "SM3",
        "units go with a topic that was deleted behind the copy",
        (Edit(SlotCopy, "_rows", "in self._gone_units(rows):", "in ():"),),
        _RUNS,
    ),
    Mutant(
        "copies-past-the-release",
        "SM2",
        "a copy stays before the release, so that it can be asked for again",
        (Edit(TouchedScan, "read_on", "if found.released_at:", "if False:"),),
        _RUNS,
    ),
    Mutant(
        "answers-older-states",
        "SM3",
        "a leader answers nothing older than the asker has",
        (
            Edit(
                SlotSource,
                "copy",
                "await log.wait_position(request.tail_position)",
                "pass",
            ),
        ),
        _SOURCE,
    ),
    Mutant(
        "counts-units-without-pending-ones",
        "SM5",
        "a release counts the units that were assigned at that moment",
        (Edit(unit_counts, "count_units", "in pending.items():", "in ():"),),
        _SOURCE,
    ),
    Mutant(
        "releases-though-much-has-changed",
        "SM6",
        "slots are released when little has changed in them",
        (
            Edit(
                SlotSource,
                "_is_quiet",
                "return len(touched.keys) <= RELEASE_KEYS_MAX and",
                "return True and",
            ),
        ),
        _SOURCE,
    ),
    Mutant(
        "begins-sessions-of-moved-brokers-anew",
        "SM7",
        "the next manager of a broker goes on with its session",
        (Edit(BrokerManager, "take_over", "self.sessions.take_over(is_here)", "pass"),),
        ("tests/unit/shards/node/test_moved_sessions.py",),
    ),
    Mutant(
        "proposes-for-slots-that-left",
        "SM1",
        "no event about a slot is proposed by a shard that does not have it",
        (Edit(Proposer, "propose", "self._check_slots(events)", "pass"),),
        _SLOTS,
    ),
    Mutant(
        "forgets-that-it-took-part-in-a-move",
        "SM1",
        "slots are looked at as long as any ever left, in later terms too",
        (Edit(Shard, "has_moved", "self.settled_move_id or ", ""),),
        _SLOTS,
    ),
    Mutant(
        "decides-as-if-slots-had-stayed",
        "SM1",
        "slots are checked again when a command has waited for its turn",
        (
            Edit(
                InventoryService,
                "_carry_out",
                "if self._state.slots.owned() is not owned:",
                "if False:",
            ),
        ),
        _SLOTS,
    ),
    Mutant(
        "shows-rows-of-moving-slots",
        "SM9",
        "scans of the view leave out rows of slots that are not the shard's",
        (Edit(ForeignSlots, "condition", "if not self.ranges:", "if True:"),),
        _SLOTS,
    ),
    Mutant(
        "shows-pending-rows-of-moving-slots",
        "SM9",
        "scans leave out pending rows of slots that are not the shard's",
        (Edit(StateScans, "_pending", "if not foreign:", "if True:"),),
        _SLOTS,
    ),
    Mutant(
        "uses-leased-units-that-went-along",
        "SM10",
        "units of released slots are not used of the lease",
        (Edit(LeaseTable, "_limited", "- self._given.get(session_id, 0)", ""),),
        _LEASES,
    ),
    Mutant(
        "believes-an-answer-from-before-the-end-of-a-move",
        "SM10",
        "given units count until an answer that was requested behind the move",
        (Edit(GivenUnits, "stated", "each[1] > asked_at", "False"),),
        _LEASES,
    ),
    Mutant(
        "attachments-of-the-former-shard",
        "S10",
        "of two attachments of the former shard the later one holds",
        (
            Edit(
                Attachments,
                "_attach",
                "moved < self._moved.get(member, moved + 1)",
                "False",
            ),
        ),
        _ATTACHMENTS,
    ),
    Mutant(
        "attachments-of-before-a-move",
        "S10",
        "what was attached before a slot went away does not count when it comes back",
        (Edit(Attachments, "forget", "node.is_known = False", "pass"),),
        _ATTACHMENTS,
    ),
    Mutant(
        "an-end-holds-up-renewals",
        "S10",
        "what a shard refuses of one consumer holds up no other",
        (Edit(attached._OfShard, "_is_heard", "return False", "raise error"),),
        _CONSUMERS,
    ),
    Mutant(
        "consumers-stay-at-the-former-shard",
        "S10",
        "a node attaches consumers at the shard that has their topic by the map",
        (Edit(attached.AttachedConsumers, "cluster_changed", "each.look_for_moved()", "pass"),),
        _CONSUMERS,
    ),
    Mutant(
        "a-snapshot-of-the-former-shard",
        "SC6",
        "a snapshot without a topic that was there is no deletion",
        (Edit(SharedLayout, "miss_topic", "if self.topic is None:", "if True:"),),
        _SHARED,
    ),
    Mutant(
        "the-way-to-a-refused-move",
        "C13",
        "a shard without the slots that it was named for is not asked again",
        (Edit(ShardRouter, "_follows", "view.forget_moves()", "pass"),),
        _ROUTING,
    ),
)
