"""The guards of moves of slots: one owner, no row lost, one end."""

from __future__ import annotations

from shards.domain.slot_moves import decider, steps
from shards.sessions.broker_manager import BrokerManager
from shards.slots import unit_counts
from shards.slots.slot_copy import SlotCopy
from shards.slots.slot_source import SlotSource
from shards.slots.touched_keys import TouchedScan
from tests.simulation.mutants.mutant import Edit, Mutant

_DOMAIN = ("tests/unit/shards/domain/test_slot_moves.py",)
_RUNS = ("tests/simulation/test_slot_moves.py",)
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
)
