"""A move of slots: what begins it, what the reports of its shards do, what is refused."""

from __future__ import annotations

import dataclasses

import pytest

from cluster_manager.domain.capacity_ledger import Lease
from cluster_manager.domain.cluster import (
    ClusterState,
    decide_begin_move,
    decide_move_report,
    decide_stop_move,
    fold_events,
)
from cluster_manager.domain.slot_moves.moves import (
    INITIAL,
    MovePhase,
    PlanMove,
    Report,
    SlotMove,
    SlotMoveChanged,
    StopMove,
    TakeMoveReport,
    evolve,
)
from cluster_manager.domain.slot_moves.ranges import mistake_in, slots_of
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.events.generations import GENERATION_BITS
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.limits.placement import (
    SLOT_MOVE_RANGES_MAX,
    SLOT_MOVE_REASON_CHARACTERS_MAX,
    SLOT_MOVES_KEPT,
)
from tests.unit.cluster_manager.domain.slot_moves.slot_worlds import cluster, leased, owners_of

RANGES = ((0, 9), (20, 29))


def begun(state: ClusterState | None = None, **values: object) -> ClusterState:
    command = PlanMove(**{"ranges": RANGES, "from_shard": 1, "to_shard": 2, **values})
    return after(state or cluster(), decide_begin_move(state or cluster(), command))


def after(state: ClusterState, decision: object) -> ClusterState:
    assert not isinstance(decision, Rejected), decision
    return fold_events(state, decision.events)


def reported(state: ClusterState, report: Report, shard_id: int, **values: object) -> ClusterState:
    return after(state, decide_move_report(state, TakeMoveReport(1, shard_id, report, **values)))


def adopted(state: ClusterState, **values: object) -> ClusterState:
    return reported(state, Report.ADOPTED, 2, from_position=40, to_position=9, **values)


def phase(state: ClusterState) -> MovePhase:
    return state.slot_moves.moves[1].phase


def test_a_move_is_planned_adopted_and_done() -> None:
    state = begun()
    assert phase(state) is MovePhase.PLANNED
    assert owners_of(state)[0] == 1

    state = reported(state, Report.COPYING, 2)
    state = adopted(state)

    assert phase(state) is MovePhase.ADOPTED
    assert state.shard_map.version == 8
    assert {owners_of(state)[slot] for slot in slots_of(RANGES)} == {2}
    assert owners_of(state)[10] == 1
    move = state.slot_moves.moves[1]
    assert (move.from_position, move.to_position, move.shard_map_version) == (40, 9, 8)

    state = reported(state, Report.CLEANED, 1)

    assert phase(state) is MovePhase.DONE
    assert state.shard_map.version == 8


def test_an_adoption_is_one_record_that_moves_owners_and_leases_together() -> None:
    state = begun()
    before = leased(state)

    state = adopted(state, session_units={"s-1": 7, "s-2": 0, "gone": 4})

    assert leased(state) == before
    leases = state.ledger.accounts["broker-1"].leases
    assert leases[1] == Lease(13, 90_000, 2, 3, 3)
    assert leases[2] == Lease(27, 90_000, 2, 17, 3)
    assert state.ledger.accounts["broker-2"].leases[1] == Lease(20, 90_000, 1, 10, 3)


def test_a_shard_gives_no_more_units_than_it_has_leased() -> None:
    state = adopted(begun(), session_units={"s-1": 50})

    leases = state.ledger.accounts["broker-1"].leases
    assert (leases[1].units, leases[2].units) == (0, 40)
    assert leased(state)["s-1"] == 60


def test_a_repeated_report_changes_nothing() -> None:
    state = adopted(begun(), session_units={"s-1": 7})

    assert adopted(state, session_units={"s-1": 7}) == state
    done = reported(state, Report.CLEANED, 1)
    assert adopted(done, session_units={"s-1": 7}) == done
    assert reported(done, Report.CLEANED, 1) == done


def test_a_move_that_is_stopped_in_time_is_taken_back() -> None:
    state = begun()
    state = after(state, decide_stop_move(state, StopMove(1, "an operator said so")))
    assert phase(state) is MovePhase.STOPPING

    state = reported(state, Report.REFUSED, 2)
    assert phase(state) is MovePhase.REFUSED
    assert state.slot_moves.moves[1].reason == "an operator said so"
    assert state.slot_moves.of_shard(1) is not None

    state = reported(state, Report.RECLAIMED, 1)
    assert phase(state) is MovePhase.TAKEN_BACK
    assert owners_of(state) == owners_of(cluster())
    # Whoever was sent on to the other shard forgets that with a new version.
    assert state.shard_map.version == 8
    assert state.slot_moves.of_shard(1) is None


def test_a_stop_that_comes_too_late_is_overtaken_by_the_adoption() -> None:
    state = begun()
    state = after(state, decide_stop_move(state, StopMove(1, "too late")))

    state = adopted(state)

    assert phase(state) is MovePhase.ADOPTED
    refused = decide_stop_move(state, StopMove(1, "later still"))
    assert isinstance(refused, Rejected)
    assert "has adopted the slots" in refused.message


def test_the_target_may_refuse_by_itself_and_says_why() -> None:
    state = reported(begun(), Report.REFUSED, 2, reason="the disk is full")

    assert state.slot_moves.moves[1].reason == "the disk is full"
    assert reported(state, Report.REFUSED, 2, reason="again") == state


@pytest.mark.parametrize(
    ("first", "second", "shard_id"),
    [
        (Report.REFUSED, Report.ADOPTED, 2),
        (Report.ADOPTED, Report.REFUSED, 2),
        (Report.ADOPTED, Report.RECLAIMED, 1),
        (None, Report.RECLAIMED, 1),
        (None, Report.CLEANED, 1),
        (Report.REFUSED, Report.CLEANED, 1),
    ],
)
def test_a_report_that_cannot_be_true_changes_nothing(
    first: Report | None, second: Report, shard_id: int
) -> None:
    state = begun()
    positions = {"from_position": 40, "to_position": 9}
    if first is not None:
        state = reported(state, first, 2, **positions)

    refused = decide_move_report(state, TakeMoveReport(1, shard_id, second, **positions))

    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.STALE_EPOCH


def test_an_adoption_elsewhere_than_the_recorded_one_is_refused() -> None:
    state = adopted(begun())

    command = TakeMoveReport(1, 2, Report.ADOPTED, from_position=41, to_position=9)

    assert isinstance(decide_move_report(state, command), Rejected)


@pytest.mark.parametrize("positions", [(0, 9), (40, 0), (40, 1 << 63)])
def test_an_adoption_has_positions(positions: tuple[int, int]) -> None:
    command = TakeMoveReport(1, 2, Report.ADOPTED, *positions)

    assert isinstance(decide_move_report(begun(), command), Rejected)


@pytest.mark.parametrize(
    ("report", "shard_id"),
    [(Report.ADOPTED, 1), (Report.RECLAIMED, 2), (Report.REFUSED, 3), (Report.CLEANED, 3)],
)
def test_only_the_shard_concerned_reports(report: Report, shard_id: int) -> None:
    refused = decide_move_report(begun(), TakeMoveReport(1, shard_id, report, 1, 1))

    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.NOT_ALLOWED


def test_a_shard_that_refused_reports_that_it_is_clean_without_an_effect() -> None:
    state = reported(begun(), Report.REFUSED, 2)

    assert reported(state, Report.CLEANED, 2) == state


def recovered() -> ClusterState:
    """Return a cluster whose last replica knew of no move when it was promoted."""
    last = SlotMove(1 << GENERATION_BITS, (), 0, 0, MovePhase.DONE)
    return fold_events(cluster(), [SlotMoveChanged(last)])


def described(state: ClusterState, shard_id: int = 2, **values: object) -> object:
    move = {"move_id": 1, "ranges": RANGES, "from_shard": 1, "to_shard": 2, **values}
    return decide_move_report(
        state,
        TakeMoveReport(shard_id=shard_id, report=Report.UNRECORDED, **move),  # type: ignore[arg-type]
    )


def test_a_move_whose_record_was_lost_ends_as_the_logs_have_decided() -> None:
    state = after(recovered(), described(recovered()))
    assert phase(state) is MovePhase.STOPPING
    assert after(state, described(state, 1)) == state, "the other shard describes it too"

    moved = reported(adopted(state), Report.CLEANED, 1)
    kept = reported(reported(state, Report.REFUSED, 2), Report.RECLAIMED, 1)

    assert {owners_of(moved)[slot] for slot in slots_of(RANGES)} == {2}
    assert owners_of(kept) == owners_of(cluster())


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"move_id": (1 << GENERATION_BITS) + 1}, RejectionCode.NOT_FOUND),
        ({"shard_id": 3}, RejectionCode.NOT_ALLOWED),
        ({"ranges": ()}, RejectionCode.NOT_ALLOWED),
        ({"to_shard": 99, "shard_id": 1}, RejectionCode.NOT_FOUND),
    ],
)
def test_a_move_that_was_not_lost_is_not_recorded(
    values: dict[str, object], code: RejectionCode
) -> None:
    refused = described(recovered(), **values)

    assert isinstance(refused, Rejected)
    assert refused.code is code


def test_a_finished_move_that_is_forgotten_is_not_recorded_again() -> None:
    refused = described(cluster(), move_id=7)

    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.NOT_FOUND


def test_an_unknown_move_is_not_found() -> None:
    for decision in (
        decide_move_report(begun(), TakeMoveReport(2, 1, Report.CLEANED)),
        decide_stop_move(begun(), StopMove(2, "")),
    ):
        assert isinstance(decision, Rejected)
        assert decision.code is RejectionCode.NOT_FOUND


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"ranges": ()}, "no slot is named"),
        ({"ranges": ((0, SLOT_COUNT),)}, "no range of slots"),
        ({"ranges": ((5, 4),)}, "no range of slots"),
        ({"ranges": ((0, 5), (5, 6))}, "named twice"),
        ({"to_shard": 1}, "has these slots already"),
        ({"to_shard": 9}, "no shard 9"),
        ({"from_shard": 9}, "no shard 9"),
        ({"from_shard": 3}, "shard 1 has it"),
        ({"ranges": ((SLOT_COUNT - 1, SLOT_COUNT - 1),)}, "shard 3 has it"),
    ],
)
def test_an_impossible_move_is_refused_with_the_reason(
    values: dict[str, object], reason: str
) -> None:
    command = PlanMove(**{"ranges": RANGES, "from_shard": 1, "to_shard": 2, **values})

    refused = decide_begin_move(cluster(), command)

    assert isinstance(refused, Rejected)
    assert reason in refused.message


def test_a_move_has_at_most_slot_move_ranges_max_ranges() -> None:
    most = tuple((2 * n, 2 * n) for n in range(SLOT_MOVE_RANGES_MAX))
    one_more = (*most, (SLOT_COUNT - 1, SLOT_COUNT - 1))
    state = cluster(2)
    half = SLOT_MOVE_RANGES_MAX // 2

    assert not isinstance(decide_begin_move(state, PlanMove(most[:half], 1, 2)), Rejected)
    refused = decide_begin_move(state, PlanMove(one_more, 1, 2))
    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.LIMIT_EXCEEDED
    refused = decide_begin_move(state, PlanMove(most, 1, 2))
    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.NOT_ALLOWED


@pytest.mark.parametrize(("source", "target"), [(1, 3), (3, 1), (3, 2), (2, 3)])
def test_a_shard_takes_part_in_one_move_at_a_time(source: int, target: int) -> None:
    slot = owners_of(cluster()).index(source) + 100

    refused = decide_begin_move(begun(), PlanMove(((slot, slot),), source, target))

    assert isinstance(refused, Rejected)
    assert "takes part in move 1 of slots 0-9, 20-29" in refused.message


def test_long_reasons_are_cut() -> None:
    long = "x" * (SLOT_MOVE_REASON_CHARACTERS_MAX + 1)

    state = reported(begun(), Report.REFUSED, 2, reason=long)

    assert len(state.slot_moves.moves[1].reason) == SLOT_MOVE_REASON_CHARACTERS_MAX


def test_slot_moves_kept_finished_moves_are_remembered_and_no_id_is_used_twice() -> None:
    state = INITIAL
    open_move = SlotMove(1, RANGES, 1, 2)
    state = evolve(state, SlotMoveChanged(open_move))
    for move_id in range(2, SLOT_MOVES_KEPT + 3):
        done = SlotMove(move_id, RANGES, 3, 4, MovePhase.DONE)
        state = evolve(state, SlotMoveChanged(done))

    assert 1 in state.moves
    assert 2 not in state.moves
    assert 3 in state.moves
    assert len(state.moves) == SLOT_MOVES_KEPT + 1
    assert state.next_id == SLOT_MOVES_KEPT + 3
    state = evolve(state, SlotMoveChanged(dataclasses.replace(open_move, phase=MovePhase.DONE)))
    assert 1 not in state.moves


def test_slots_of_ranges() -> None:
    assert list(slots_of(((1, 3), (7, 7)))) == [1, 2, 3, 7]
    assert mistake_in(((1, 3), (7, 7))) == ""
