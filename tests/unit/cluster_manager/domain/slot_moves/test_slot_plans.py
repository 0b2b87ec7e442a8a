"""Plans: which slots a wish moves, what is refused, which moves come next, and when a plan ends."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.domain.capacity_ledger import CapacityLeaseReleased
from cluster_manager.domain.cluster import (
    ClusterState,
    decide_begin_move,
    decide_move_report,
    decide_plan_slots,
    decide_stop_move,
    decide_stop_plan,
    fold_events,
)
from cluster_manager.domain.slot_moves import driver
from cluster_manager.domain.slot_moves.driver import first_slots, left_of, next_moves
from cluster_manager.domain.slot_moves.moves import MovePhase, Report, StopMove, TakeMoveReport
from cluster_manager.domain.slot_moves.planning import PlanSlots, place_added
from cluster_manager.domain.slot_moves.plans import (
    INITIAL,
    Plan,
    PlanChanged,
    PlanKind,
    PlanPhase,
    ended,
    evolve,
    ranges_between,
)
from cluster_manager.domain.slot_moves.ranges import slots_of
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.cluster import DISK_RESERVE_BYTES, SHARDS_MAX, SLOT_COUNT
from nextgen.kernel.limits.placement import (
    SLOT_MOVE_REASON_CHARACTERS_MAX,
    SLOT_MOVE_ROWS_MAX,
    SLOT_MOVE_SLOTS_MAX,
    SLOT_MOVES_AT_ONCE,
    SLOT_PLANS_KEPT,
    SLOT_ROW_BYTES,
)
from nextgen.kernel.limits.write import OUTCOME_WINDOW_MS
from nextgen.kernel.routing.slots import SHARD_ID_MAX, SlotRun
from tests.unit.cluster_manager.domain.slot_moves.slot_worlds import (
    CONTEXT,
    cluster,
    owners_of,
    wish,
)


def planned(state: ClusterState, command: PlanSlots) -> ClusterState:
    decision = decide_plan_slots(state, command, CONTEXT)
    assert not isinstance(decision, Rejected), decision
    return fold_events(state, decision.events)


def carried_out(state: ClusterState) -> ClusterState:
    """Return the state after the present plan, whose moves all succeed; check each step."""
    for _ in range(1_000):
        plan = state.plans.present
        if plan is None:
            return state
        shard_map = state.shard_map
        led = set(shard_map.shard_ids)
        # Of small shards, so that few moves are needed.
        step = next_moves(plan, state.slot_moves, shard_map, led, dict.fromkeys(led, 10))
        if step.has_ended:
            state = fold_events(state, [ended(plan, 9_000)])
            continue
        for command in step.moves:
            decision = decide_begin_move(state, command)
            assert not isinstance(decision, Rejected), decision
            state = fold_events(state, decision.events)
        for move in state.slot_moves.under_way:
            for report, shard_id in (
                (Report.ADOPTED, move.to_shard),
                (Report.CLEANED, move.from_shard),
            ):
                taken = decide_move_report(
                    state, TakeMoveReport(move.move_id, shard_id, report, 5, 6)
                )
                state = fold_events(state, taken.events)
    raise AssertionError("the plan does not end")


def slots_by_shard(state: ClusterState) -> dict[int, int]:
    return dict(Counter(owners_of(state)))


def test_a_split_gives_half_of_the_slots_to_a_new_shard_on_the_emptiest_nodes() -> None:
    state = planned(cluster(), wish(PlanKind.SPLIT, shard_id=2))

    plan = state.plans.present
    assert (plan.added, plan.retired, plan.last_shard_id) == ((4,), (), 4)
    assert state.shard_map.version == 8
    placement = state.shard_map.placement(4)
    assert len(placement.replicas) == 2
    assert not placement.has_led
    assert slots_by_shard(state) == slots_by_shard(cluster())

    after = carried_out(state)

    assert slots_by_shard(after) == {1: 5_462, 2: 2_731, 3: 5_461, 4: 2_730}
    assert after.plans.latest.phase is PlanPhase.DONE
    # The lower half stays where it is.
    mine = owners_of(after).index(2)
    assert owners_of(after)[mine : mine + 2_731] == (2,) * 2_731


def test_a_split_takes_a_retired_shard_rather_than_a_new_one() -> None:
    state = carried_out(planned(cluster(), wish(PlanKind.MERGE, shard_id=3, into_shard=1)))
    assert state.plans.retired == (3,)

    state = carried_out(planned(state, wish(PlanKind.SPLIT, shard_id=2)))

    assert state.plans.latest.added == ()
    assert state.plans.retired == ()
    assert slots_by_shard(state)[3] == 2_730


def test_a_merge_gives_everything_away_and_retires_the_shard() -> None:
    state = carried_out(planned(cluster(), wish(PlanKind.MERGE, shard_id=3, into_shard=1)))

    assert slots_by_shard(state) == {1: 10_923, 2: 5_461}
    assert state.plans.retired == (3,)
    assert state.shard_map.shard_ids == (1, 2, 3)


def test_slots_are_moved_whoever_has_them() -> None:
    ranges = ((0, 99), (16_000, 16_099))

    state = carried_out(planned(cluster(), wish(PlanKind.MOVE_SLOTS, into_shard=2, ranges=ranges)))

    assert slots_by_shard(state) == {1: 5_362, 2: 5_661, 3: 5_361}
    assert {owners_of(state)[slot] for slot in (0, 99, 16_000, 16_099)} == {2}


def test_a_rebalance_fills_added_shards_and_no_retired_one() -> None:
    state = carried_out(planned(cluster(), wish(PlanKind.MERGE, shard_id=3, into_shard=1)))
    state = carried_out(planned(state, wish(PlanKind.ADD_SHARDS, shards=2)))
    assert state.plans.latest.added == (4, 5)
    assert slots_by_shard(state).keys() == {1, 2}

    state = carried_out(planned(state, wish(PlanKind.REBALANCE)))

    assert slots_by_shard(state) == {1: 4_096, 2: 4_096, 4: 4_096, 5: 4_096}
    assert state.plans.retired == (3,)


def test_a_rebalance_of_even_shards_moves_nothing_and_is_done() -> None:
    state = carried_out(planned(cluster(), wish(PlanKind.REBALANCE)))

    assert state.plans.latest.wanted == ()
    assert state.plans.latest.phase is PlanPhase.DONE
    assert state.slot_moves.moves == {}


def test_a_shard_is_removed_in_two_steps_and_its_id_is_not_used_again() -> None:
    state = carried_out(planned(cluster(), wish(PlanKind.REMOVE_SHARD, shard_id=3)))
    assert slots_by_shard(state) == {1: 8_192, 2: 8_192}
    assert state.shard_map.shard_ids == (1, 2, 3)
    assert state.plans.retired == (3,)

    state = carried_out(planned(state, wish(PlanKind.REMOVE_SHARD, shard_id=3)))
    assert state.shard_map.shard_ids == (1, 2)
    assert state.plans.retired == ()
    assert all(3 not in account.leases for account in state.ledger.accounts.values())

    state = planned(state, wish(PlanKind.ADD_SHARDS, shards=1))
    assert state.plans.latest.added == (4,)


def test_a_removed_shard_s_leases_are_free_again() -> None:
    state = carried_out(planned(cluster(), wish(PlanKind.REMOVE_SHARD, shard_id=3)))

    decision = decide_plan_slots(state, wish(PlanKind.REMOVE_SHARD, shard_id=3), CONTEXT)

    assert [event for event in decision.events if isinstance(event, CapacityLeaseReleased)] == [
        CapacityLeaseReleased("broker-1", "s-1", 3, "shard_removed"),
        CapacityLeaseReleased("broker-2", "s-2", 3, "shard_removed"),
    ]


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        (wish(PlanKind.SPLIT, shard_id=9), RejectionCode.NOT_FOUND, "no shard 9"),
        (wish(PlanKind.SPLIT, shard_id=1, into_shard=9), RejectionCode.NOT_FOUND, "no shard 9"),
        (wish(PlanKind.SPLIT, shard_id=1, into_shard=1), RejectionCode.NOT_ALLOWED, "into itself"),
        (wish(PlanKind.MERGE, shard_id=1, into_shard=1), RejectionCode.NOT_ALLOWED, "into itself"),
        (wish(PlanKind.MERGE, shard_id=1, into_shard=0), RejectionCode.NOT_FOUND, "no shard 0"),
        (wish(PlanKind.REMOVE_SHARD, shard_id=0), RejectionCode.NOT_FOUND, "no shard 0"),
        (wish(PlanKind.ADD_SHARDS), RejectionCode.NOT_ALLOWED, "are none"),
        (wish(PlanKind.MOVE_SLOTS, into_shard=1), RejectionCode.NOT_ALLOWED, "no slot is named"),
        (
            wish(PlanKind.MOVE_SLOTS, into_shard=1, ranges=((0, SLOT_COUNT),)),
            RejectionCode.NOT_ALLOWED,
            "no range of slots",
        ),
        (
            wish(PlanKind.MOVE_SLOTS, into_shard=1, ranges=((0, 9), (9, 12))),
            RejectionCode.NOT_ALLOWED,
            "named twice",
        ),
        (
            wish(PlanKind.MOVE_SLOTS, into_shard=1, ranges=((0, 9),)),
            RejectionCode.NOT_ALLOWED,
            "has these slots already",
        ),
        (
            wish(PlanKind.MOVE_SLOTS, shard_id=2, into_shard=3, ranges=((0, 9),)),
            RejectionCode.NOT_ALLOWED,
            "shard 1 has it",
        ),
    ],
)
def test_an_impossible_plan_is_refused_with_the_reason(
    command: PlanSlots, code: RejectionCode, reason: str
) -> None:
    refused = decide_plan_slots(cluster(), command, CONTEXT)

    assert isinstance(refused, Rejected)
    assert refused.code is code
    assert reason in refused.message


def test_no_plan_leaves_slots_without_an_owner() -> None:
    refused = decide_plan_slots(cluster(1), wish(PlanKind.REMOVE_SHARD, shard_id=1), CONTEXT)

    assert isinstance(refused, Rejected)
    assert "nobody would have the slots" in refused.message


def test_a_shard_with_one_slot_is_not_split() -> None:
    ranges = ((1, SLOT_COUNT - 1),)
    state = carried_out(planned(cluster(2), wish(PlanKind.MOVE_SLOTS, into_shard=2, ranges=ranges)))

    refused = decide_plan_slots(state, wish(PlanKind.SPLIT, shard_id=1), CONTEXT)

    assert isinstance(refused, Rejected)
    assert "two are needed" in refused.message


def test_a_second_plan_is_refused_with_the_running_one() -> None:
    state = planned(cluster(), wish(PlanKind.SPLIT, shard_id=1))

    refused = decide_plan_slots(state, wish(PlanKind.REBALANCE), CONTEXT)

    assert isinstance(refused, Rejected)
    assert "plan 1 (split) is running" in refused.message


def test_a_repeated_request_makes_one_plan() -> None:
    command = wish(PlanKind.SPLIT, shard_id=1, request_id="r-1")
    state = planned(cluster(), command)

    assert planned(state, command) == state
    state = carried_out(state)
    assert planned(state, command) == state


def test_shards_max_is_kept() -> None:
    command = wish(PlanKind.ADD_SHARDS, shards=SHARDS_MAX - 3)
    assert len(planned(cluster(), command).shard_map.shard_ids) == SHARDS_MAX

    refused = decide_plan_slots(
        cluster(), dataclasses.replace(command, shards=SHARDS_MAX - 2), CONTEXT
    )

    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.LIMIT_EXCEEDED


def test_shard_id_max_is_the_last_id() -> None:
    last = Plan(1, PlanKind.ADD_SHARDS, PlanPhase.DONE, last_shard_id=SHARD_ID_MAX - 1)
    state = fold_events(cluster(), [PlanChanged(last)])
    assert planned(state, wish(PlanKind.ADD_SHARDS, shards=1)).plans.latest.added == (SHARD_ID_MAX,)

    refused = decide_plan_slots(state, wish(PlanKind.ADD_SHARDS, shards=2), CONTEXT)

    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.LIMIT_EXCEEDED


def test_new_shards_need_as_many_nodes_as_replicas() -> None:
    context = dataclasses.replace(CONTEXT, node_ids=frozenset({"a"}))

    refused = decide_plan_slots(cluster(), wish(PlanKind.SPLIT, shard_id=1), context)

    assert isinstance(refused, Rejected)
    assert "1 shard nodes are there" in refused.message
    assert not isinstance(decide_plan_slots(cluster(), wish(PlanKind.REBALANCE), context), Rejected)


def test_new_shards_go_to_the_nodes_with_the_fewest_replicas_and_leaders() -> None:
    placements = cluster(3).shard_map.placements

    context = dataclasses.replace(CONTEXT, node_ids=frozenset({"a", "b", "c", "d"}))

    placed = place_added(placements, range(4, 10), context)

    held = Counter(node for each in (*placements, *placed) for node in each.replicas)
    assert max(held.values()) - min(held.values()) <= 1
    assert Counter(each.replicas[0] for each in placed)["d"] >= 2


def test_new_shards_are_spread_over_zones_as_evenly_as_these_have_nodes() -> None:
    zones = {"a": "east", "b": "east", "c": "east", "d": "west"}
    context = dataclasses.replace(CONTEXT, node_ids=frozenset(zones), zones=zones)

    placed = place_added((), range(1, 9), context)

    for placement in placed:
        assert {zones[node] for node in placement.replicas} == {"east", "west"}


def test_a_shard_is_not_removed_while_retries_may_ask_it_for_first_outcomes() -> None:
    state = carried_out(planned(cluster(), wish(PlanKind.MERGE, shard_id=3, into_shard=1)))
    ended_at_ms = state.plans.latest.ended_at_ms
    remove = wish(PlanKind.REMOVE_SHARD, shard_id=3)

    def decided(later_ms: int) -> object:
        context = dataclasses.replace(CONTEXT, now_ms=ended_at_ms + later_ms)
        return decide_plan_slots(state, remove, context)

    refused = decided(OUTCOME_WINDOW_MS - 1_500)
    assert isinstance(refused, Rejected)
    assert "try again in 2 s" in refused.message
    assert not isinstance(decided(OUTCOME_WINDOW_MS), Rejected)


def test_a_plan_that_does_not_fit_on_a_disk_is_refused() -> None:
    state = cluster(2)
    command = wish(PlanKind.MERGE, shard_id=1, into_shard=2)
    (first, second) = state.shard_map.placement(2).replicas
    rows = 1_000_000
    needed = DISK_RESERVE_BYTES + rows * SLOT_ROW_BYTES

    def decided(**free: int) -> object:
        context = dataclasses.replace(CONTEXT, rows={1: rows, 2: 5 * rows}, disk_free=free)
        return decide_plan_slots(state, command, context)

    assert not isinstance(decided(**{first: needed, second: needed}), Rejected)
    assert not isinstance(decided(**{first: needed}), Rejected), "of the other nothing is known"
    refused = decided(**{first: needed, second: needed - 1})
    assert isinstance(refused, Rejected)
    assert f"some 476 MiB to {second}" in refused.message
    other = next(node for node in ("a", "b", "c") if node not in (first, second))
    assert not isinstance(decided(**{other: 1}), Rejected)


def test_half_of_a_shard_needs_half_of_the_room_on_the_nodes_of_the_new_shard() -> None:
    rows = 1_000_000
    command = wish(PlanKind.SPLIT, shard_id=1)

    def decided(free_bytes: int) -> object:
        free = dict.fromkeys(("a", "b", "c"), free_bytes)
        context = dataclasses.replace(CONTEXT, rows={1: rows}, disk_free=free)
        return decide_plan_slots(cluster(2), command, context)

    needed = DISK_RESERVE_BYTES + rows // 2 * SLOT_ROW_BYTES
    assert not isinstance(decided(needed), Rejected)
    assert isinstance(decided(needed - 1), Rejected)


def test_a_plan_waits_for_leaders_of_its_shards() -> None:
    state = planned(cluster(), wish(PlanKind.SPLIT, shard_id=1))

    step = next_moves(state.plans.present, state.slot_moves, state.shard_map, {1, 2, 3}, {})

    assert step.moves == ()
    assert step.waits_for == "shard 4 has no leader"
    added = planned(cluster(), wish(PlanKind.ADD_SHARDS, shards=1))
    step = next_moves(added.plans.present, added.slot_moves, added.shard_map, {1, 2, 3}, {})
    assert not step.has_ended
    assert step.waits_for == "shard 4 has no leader yet"


def test_moves_have_slot_move_rows_max_rows_by_estimate() -> None:
    state = planned(cluster(2), wish(PlanKind.MERGE, shard_id=1, into_shard=2))

    def slots(rows: dict[int, int]) -> int:
        step = next_moves(state.plans.present, state.slot_moves, state.shard_map, {1, 2}, rows)
        ((first, last),) = step.moves[0].ranges
        return last + 1 - first

    assert slots({1: 8_192 * 500}) == SLOT_MOVE_ROWS_MAX // 500
    assert slots({1: 8_192 * (SLOT_MOVE_ROWS_MAX + 1)}) == 1
    assert slots({1: 10}) == SLOT_MOVE_SLOTS_MAX
    assert slots({}) == SLOT_MOVE_SLOTS_MAX


def test_a_shard_that_will_report_its_size_soon_is_waited_for() -> None:
    state = planned(cluster(2), wish(PlanKind.MERGE, shard_id=1, into_shard=2))

    def step(rows: dict[int, int]) -> driver.Next:
        plan, moves = state.plans.present, state.slot_moves
        return next_moves(plan, moves, state.shard_map, {1, 2}, rows, needs_rows=True)

    assert step({2: 5}).moves == ()
    assert step({2: 5}).waits_for == "shard 1 has not reported its size"
    assert len(step({1: 5}).moves) == 1


def test_slot_move_slots_max_slots_go_at_once_however_few_rows_they_have() -> None:
    ranges = ((0, SLOT_MOVE_SLOTS_MAX),)
    state = planned(cluster(2), wish(PlanKind.MOVE_SLOTS, into_shard=2, ranges=ranges))

    step = next_moves(state.plans.present, state.slot_moves, state.shard_map, {1, 2}, {1: 0})

    assert step.moves[0].ranges == ((0, SLOT_MOVE_SLOTS_MAX - 1),)


def test_slot_moves_at_once_moves_begin_and_no_shard_is_in_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = cluster(4 * SLOT_MOVES_AT_ONCE)
    state = carried_out(planned(many, wish(PlanKind.ADD_SHARDS, shards=4 * SLOT_MOVES_AT_ONCE)))
    state = planned(state, wish(PlanKind.REBALANCE))

    def moves() -> list[int]:
        led = set(state.shard_map.shard_ids)
        step = next_moves(state.plans.present, state.slot_moves, state.shard_map, led, {})
        return [shard for move in step.moves for shard in (move.from_shard, move.to_shard)]

    assert len(moves()) == 2 * SLOT_MOVES_AT_ONCE
    assert len(set(moves())) == len(moves())
    monkeypatch.setattr(driver, "SLOT_MOVES_AT_ONCE", SLOT_MOVES_AT_ONCE + 1)
    assert len(moves()) == 2 * SLOT_MOVES_AT_ONCE + 2


def test_what_is_left_of_a_plan_is_estimated() -> None:
    state = planned(cluster(2), wish(PlanKind.MERGE, shard_id=1, into_shard=2))

    left = left_of(state.plans.present, state.shard_map, {1: 8_192 * 500})

    assert (left.slots, left.rows, left.moves) == (8_192, 8_192 * 500, 82)
    after = carried_out(state)
    assert left_of(after.plans.latest, after.shard_map, {}).slots == 0


def begun(state: ClusterState) -> ClusterState:
    step = next_moves(state.plans.present, state.slot_moves, state.shard_map, {1, 2, 3}, {})
    return fold_events(state, decide_begin_move(state, step.moves[0]).events)


def test_a_stop_takes_back_what_is_under_way_and_ends_when_that_is_over() -> None:
    state = begun(planned(cluster(), wish(PlanKind.MERGE, shard_id=1, into_shard=2)))
    state = fold_events(state, decide_stop_plan(state, 0, "enough").events)
    assert state.plans.present.phase is PlanPhase.STOPPING
    assert state.slot_moves.moves[1].phase is MovePhase.STOPPING

    def step() -> driver.Next:
        return next_moves(state.plans.present, state.slot_moves, state.shard_map, {1, 2, 3}, {})

    assert not step().has_ended
    assert step().moves == ()
    for report, shard_id in ((Report.REFUSED, 2), (Report.RECLAIMED, 1)):
        taken = decide_move_report(state, TakeMoveReport(1, shard_id, report))
        state = fold_events(state, taken.events)
    assert step().has_ended
    state = fold_events(state, [ended(state.plans.present, 9)])

    assert state.plans.latest.phase is PlanPhase.STOPPED
    assert state.plans.latest.reason == "enough"
    assert owners_of(state) == owners_of(cluster())
    assert isinstance(decide_stop_plan(state, 0, ""), Rejected)
    assert decide_stop_plan(state, 1, "").events == ()


def test_a_refused_move_stops_its_plan_with_the_reason() -> None:
    state = begun(planned(cluster(), wish(PlanKind.MERGE, shard_id=1, into_shard=2)))

    taken = decide_move_report(state, TakeMoveReport(1, 2, Report.REFUSED, reason="disk is full"))
    state = fold_events(state, taken.events)

    assert state.plans.present.phase is PlanPhase.STOPPING
    assert state.plans.present.reason == "move 1 to shard 2: disk is full"


def test_a_stopped_move_stops_its_plan() -> None:
    state = begun(planned(cluster(), wish(PlanKind.MERGE, shard_id=1, into_shard=2)))

    state = fold_events(state, decide_stop_move(state, StopMove(1, "no news")).events)

    assert state.plans.present.phase is PlanPhase.STOPPING
    assert "no news" in state.plans.present.reason


def test_a_plan_that_is_done_or_unknown_is_not_stopped() -> None:
    state = carried_out(planned(cluster(), wish(PlanKind.REBALANCE)))

    done = decide_stop_plan(state, 1, "")
    unknown = decide_stop_plan(state, 2, "")

    assert isinstance(done, Rejected)
    assert done.code is RejectionCode.NOT_ALLOWED
    assert isinstance(unknown, Rejected)
    assert unknown.code is RejectionCode.NOT_FOUND


def test_no_plan_begins_while_a_move_is_not_over() -> None:
    state = begun(planned(cluster(), wish(PlanKind.MERGE, shard_id=1, into_shard=2)))
    state = fold_events(state, [ended(state.plans.present, 9)])

    refused = decide_plan_slots(state, wish(PlanKind.REBALANCE), CONTEXT)

    assert isinstance(refused, Rejected)
    assert "move 1 of shards 1 and 2 is not over" in refused.message


def test_slot_plans_kept_plans_are_remembered() -> None:
    state = INITIAL
    for plan_id in range(1, SLOT_PLANS_KEPT + 2):
        plan = Plan(plan_id, PlanKind.REBALANCE, PlanPhase.DONE, request_id=f"r-{plan_id}")
        state = evolve(state, PlanChanged(plan))

    assert len(state.plans) == SLOT_PLANS_KEPT
    assert state.of_request("r-1") is None
    assert state.of_request("r-2") is not None
    assert state.next_id == SLOT_PLANS_KEPT + 2


def test_a_long_reason_of_a_stop_is_cut() -> None:
    state = planned(cluster(), wish(PlanKind.REBALANCE))

    state = fold_events(
        state, decide_stop_plan(state, 1, "x" * (SLOT_MOVE_REASON_CHARACTERS_MAX + 1)).events
    )

    assert len(state.plans.latest.reason) == SLOT_MOVE_REASON_CHARACTERS_MAX


def test_the_first_slots_of_ranges() -> None:
    assert first_slots(((0, 3), (9, 12)), 6) == ((0, 3), (9, 10))
    assert first_slots(((0, 3),), 9) == ((0, 3),)


def test_wanted_slots_are_few_runs() -> None:
    state = planned(cluster(), wish(PlanKind.SPLIT, shard_id=1))

    assert state.plans.present.wanted == (SlotRun(2_731, 5_461, 4),)


SHARDS = st.integers(1, 3)


@given(
    owners=st.lists(SHARDS, min_size=1, max_size=30),
    pieces=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 8), SHARDS), max_size=8),
)
def test_what_is_left_of_a_plan_has_each_slot_in_as_few_ranges_as_possible(
    owners: list[int], pieces: list[tuple[int, int, int]]
) -> None:
    wanted, first = [], 0
    for gap, slots, shard_id in pieces:
        last = min(first + gap + slots, len(owners)) - 1
        if first + gap <= last:
            wanted.append(SlotRun(first + gap, last, shard_id))
            first = last + 1
    expected: dict[tuple[int, int], list[int]] = {}
    for run in wanted:
        for slot in range(run.first, run.last + 1):
            if owners[slot] != run.shard_id:
                expected.setdefault((owners[slot], run.shard_id), []).append(slot)

    left = ranges_between(wanted, tuple(owners))

    assert {pair: list(slots_of(ranges)) for pair, ranges in left.items()} == expected
    assert list(left) == list(expected)
    for ranges in left.values():
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))
