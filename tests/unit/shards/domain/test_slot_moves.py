"""What a shard's log records of a move of slots, and what its leader does next."""

from __future__ import annotations

from typing import Any

import pytest

from nextgen.kernel.events.decider import Accepted, Rejected
from shards.domain import shard
from shards.domain.shard import AdoptSlots, MarkRestore, RestorePhase, Shard
from shards.domain.slot_moves import decider
from shards.domain.slot_moves.decider import (
    AdoptCame,
    BeginIncoming,
    CopyRows,
    ReclaimSlots,
    RefuseSlots,
    ReleaseSlots,
    RemoveRows,
)
from shards.domain.slot_moves.steps import MovePhase, MoveStep, SlotMove, due_report, next_step
from shards.domain.slots.events import SCAN_DONE, CountedUnits, IncomingSlots

A, B = 1, 2
MOVED = ((10, 19), (40, 49))
UNITS = (CountedUnits("s-1", 3),)

BEGIN = BeginIncoming(7, MOVED, A, 100)
SCANNED = CopyRows(7, (), SCAN_DONE, "", 120)
RELEASE = ReleaseSlots(7, MOVED, B, UNITS, (), 5)
ADOPT = AdoptCame(7, (), 130, 4, UNITS, (), 5)
REFUSE = RefuseSlots(7, "stopped")
RECLAIM = ReclaimSlots(7)
CLEAN = RemoveRows(7, (), is_last=True)


def source() -> Shard:
    return after(None, AdoptSlots(((0, 99),), 1))


def target() -> Shard:
    return after(None, AdoptSlots(((100, 199),), 1))


def after(state: Shard | None, *commands: Any) -> Shard:
    for command in commands:
        decision = decide(state, command)
        assert isinstance(decision, Accepted), f"{command} is refused: {decision}"
        for event in decision.events:
            state = shard.evolve(state, event)
    assert state is not None
    return state


def decide(state: Shard | None, command: Any) -> Any:
    if isinstance(command, AdoptSlots | MarkRestore):
        return shard.decide(state, command)
    return decider.decide(state, command)


def refusal(state: Shard, command: Any) -> str:
    decision = decide(state, command)
    assert isinstance(decision, Rejected), f"{command} is accepted: {decision}"
    return decision.message


def test_a_move_takes_slots_from_one_log_and_brings_them_to_the_other() -> None:
    left = after(source(), RELEASE)
    came = after(target(), BEGIN, SCANNED, ADOPT)

    assert left.ranges == ((0, 9), (20, 39), (50, 99))
    assert left.outgoing[0].session_units == UNITS
    assert came.ranges == (*MOVED, (100, 199))
    assert (came.came[0].from_shard, came.came[0].from_position) == (A, 130)
    assert (came.incoming, came.least_epoch, came.shard_map_version) == ((), 5, 4)
    assert after(left, CLEAN).outgoing == ()


@pytest.mark.parametrize(
    ("state", "command"),
    [
        (after(target(), BEGIN), BEGIN),
        (after(source(), RELEASE), RELEASE),
        (after(target(), BEGIN, SCANNED, ADOPT), ADOPT),
        (after(target(), BEGIN, REFUSE), REFUSE),
        (after(source(), RELEASE, RECLAIM), RECLAIM),
    ],
)
def test_what_is_done_already_is_not_recorded_again(state: Shard, command: Any) -> None:
    assert decide(state, command) == Accepted(())


def test_a_move_that_was_refused_is_never_adopted_nor_begun_again() -> None:
    for refused in (after(target(), BEGIN, SCANNED, REFUSE), after(target(), REFUSE)):
        assert refused.ranges == target().ranges
        assert refusal(refused, ADOPT)
        assert refusal(refused, SCANNED)
    cleaned = after(target(), BEGIN, REFUSE, CLEAN)
    assert cleaned.incoming == ()
    assert refusal(cleaned, BEGIN) == "move 7 is over"
    assert refusal(after(target(), BEGIN, SCANNED, ADOPT), REFUSE)


def test_slots_are_not_released_for_a_move_that_is_over() -> None:
    """A request to release may arrive when the target has refused the move long ago."""
    reclaimed = after(source(), RELEASE, RECLAIM)
    never_released = after(source(), RECLAIM)

    assert reclaimed.ranges == never_released.ranges == ((0, 99),)
    assert refusal(reclaimed, RELEASE) == refusal(never_released, RELEASE) == "move 7 is over"
    assert refusal(after(source(), RELEASE, CLEAN), RELEASE) == "move 7 is over"


def test_slots_are_adopted_when_everything_was_copied_and_only_from_a_release_behind_it() -> None:
    begun = after(target(), BEGIN)

    assert "not all rows" in refusal(begun, ADOPT)
    assert "not all rows" in refusal(after(begun, CopyRows(7, (), "topic", "x", 120)), ADOPT)
    late = after(begun, CopyRows(7, (), SCAN_DONE, "", 130))
    assert "released before" in refusal(late, ADOPT)
    assert "older" in refusal(late, SCANNED)


def test_a_shard_takes_part_in_one_move_at_a_time_and_in_none_while_it_is_restored() -> None:
    other = BeginIncoming(8, ((20, 29),), 3, 1)
    assert refusal(after(target(), BEGIN), other) == "move 7 has not ended"
    assert refusal(after(source(), RELEASE), ReleaseSlots(8, ((0, 1),), B, (), (), 0))
    assert after(target(), BEGIN, REFUSE, CLEAN, other).incoming[0].move_id == 8
    restoring = after(target(), MarkRestore("b", RestorePhase.BEGUN, 0))
    assert "restored" in refusal(restoring, BEGIN)


def test_only_slots_that_a_shard_has_are_released_and_only_others_come() -> None:
    assert refusal(source(), ReleaseSlots(7, ((90, 100),), B, (), (), 0))
    assert refusal(source(), ReleaseSlots(7, (), B, (), (), 0))
    assert refusal(source(), BeginIncoming(7, ((99, 110),), 3, 1))


def test_rows_are_removed_of_slots_alone_that_left_or_were_refused() -> None:
    assert refusal(source(), CLEAN)
    assert refusal(after(target(), BEGIN), CLEAN)


def move(phase: str) -> SlotMove:
    return SlotMove(7, MOVED, A, B, MovePhase(phase))


@pytest.mark.parametrize(
    ("state", "phase", "step", "report"),
    [
        (target(), "planned", MoveStep.COPY, ""),
        (after(target(), BEGIN), "planned", MoveStep.COPY, ""),
        (after(target(), BEGIN), "stopping", MoveStep.REFUSE, ""),
        (target(), "stopping", MoveStep.REFUSE, ""),
        (after(target(), BEGIN, REFUSE), "stopping", MoveStep.REMOVE_ROWS, "refused"),
        (after(target(), BEGIN, REFUSE), "taken_back", MoveStep.REMOVE_ROWS, ""),
        (after(target(), BEGIN, REFUSE, CLEAN), "planned", MoveStep.NOTHING, "refused"),
        (after(target(), REFUSE), "stopping", MoveStep.NOTHING, "refused"),
        (after(target(), BEGIN, SCANNED, ADOPT), "planned", MoveStep.NOTHING, "adopted"),
        (after(target(), BEGIN, SCANNED, ADOPT), "stopping", MoveStep.NOTHING, "adopted"),
        (after(target(), BEGIN, SCANNED, ADOPT), "adopted", MoveStep.NOTHING, ""),
    ],
)
def test_what_the_target_does_next(state: Shard, phase: str, step: MoveStep, report: str) -> None:
    assert next_step(B, state, move(phase)) is step
    assert due_report(B, state, move(phase)) == report
    assert next_step(3, state, move(phase)) is MoveStep.NOTHING


@pytest.mark.parametrize(
    ("state", "phase", "step", "report"),
    [
        (source(), "planned", MoveStep.NOTHING, ""),
        (after(source(), RELEASE), "planned", MoveStep.NOTHING, ""),
        (after(source(), RELEASE), "stopping", MoveStep.NOTHING, ""),
        (after(source(), RELEASE), "adopted", MoveStep.REMOVE_ROWS, ""),
        (after(source(), RELEASE, CLEAN), "adopted", MoveStep.NOTHING, "cleaned"),
        (source(), "refused", MoveStep.RECLAIM, ""),
        (after(source(), RELEASE), "refused", MoveStep.RECLAIM, ""),
        (after(source(), RELEASE, RECLAIM), "refused", MoveStep.NOTHING, "reclaimed"),
        (after(source(), RECLAIM), "refused", MoveStep.NOTHING, "reclaimed"),
        (after(source(), RECLAIM), "taken_back", MoveStep.NOTHING, ""),
    ],
)
def test_what_the_source_does_next(state: Shard, phase: str, step: MoveStep, report: str) -> None:
    assert next_step(A, state, move(phase)) is step
    assert due_report(A, state, move(phase)) == report


def test_a_refused_move_is_remembered_until_its_rows_are_gone() -> None:
    refused = after(target(), BEGIN, REFUSE)

    assert refused.incoming == (IncomingSlots(7, MOVED, A, tail_position=100, is_refused=True),)
