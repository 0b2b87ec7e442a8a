"""When shards are split and merged by themselves: the table of the rule."""

from __future__ import annotations

import dataclasses

import pytest

from cluster_manager.domain.cluster import ClusterState, fold_events
from cluster_manager.domain.slot_moves import automatic
from cluster_manager.domain.slot_moves.automatic import (
    Moment,
    Since,
    Size,
    SizeLimits,
    next_wish,
    observed,
)
from cluster_manager.domain.slot_moves.plans import Plan, PlanChanged, PlanKind, PlanPhase
from nextgen.kernel.limits.placement import (
    SHARD_FULL_MS,
    SHARD_IDLE_FULLNESS,
    SHARD_IDLE_MS,
    SHARD_PLAN_FAILED_PAUSE_MS,
    SHARD_PLAN_PAUSE_MS,
)
from tests.unit.cluster_manager.domain.slot_moves.slot_worlds import cluster

LIMITS = SizeLimits(topics_max=1_000, commands_per_second_max=100)
LONG = max(SHARD_FULL_MS, SHARD_IDLE_MS)
FULL, IDLE, BUSY = Size(1_001, 0), Size(399, 39), Size(700, 70)


def decided(
    sizes: dict[int, Size],
    *,
    for_ms: int = LONG,
    limits: SizeLimits = LIMITS,
    state: ClusterState | None = None,
    shards_min: int = 1,
) -> tuple[str, int, int] | None:
    """Return what is decided when the sizes have been so for a time."""
    state = state or cluster(len(sizes))
    since = observed(Since(), sizes, limits, 5_000)
    since = observed(since, sizes, limits, 5_000 + for_ms)
    wish = next_wish(
        since,
        sizes,
        limits,
        state.plans,
        state.shard_map,
        shards_min,
        Moment(5_000 + for_ms, 9_000_000),
    )
    if wish is None:
        return None
    assert wish.is_automatic
    return wish.kind.value, wish.shard_id, wish.into_shard


SPLIT_2, MERGE_1_INTO_2 = ("split", 2, 0), ("merge", 1, 2)


@pytest.mark.parametrize(
    ("sizes", "values", "expected"),
    [
        # Off, or nothing remarkable.
        ({1: FULL, 2: FULL}, {"limits": SizeLimits()}, None),
        ({1: BUSY, 2: BUSY}, {}, None),
        # Full by topics, by commands, by one limit alone.
        ({1: BUSY, 2: FULL}, {}, SPLIT_2),
        ({1: BUSY, 2: Size(1_000, 100)}, {}, None),
        ({1: BUSY, 2: Size(10, 100.5)}, {}, SPLIT_2),
        ({1: BUSY, 2: Size(10, 500)}, {"limits": SizeLimits(topics_max=1_000)}, None),
        ({1: BUSY, 2: Size(5_000, 10)}, {"limits": SizeLimits(0, 100)}, None),
        # For how long.
        ({1: BUSY, 2: FULL}, {"for_ms": SHARD_FULL_MS}, SPLIT_2),
        ({1: BUSY, 2: FULL}, {"for_ms": SHARD_FULL_MS - 1}, None),
        ({1: IDLE, 2: IDLE}, {"for_ms": SHARD_IDLE_MS - 1}, None),
        # The fullest; the lower id among equals.
        ({1: FULL, 2: Size(1_002, 0)}, {}, SPLIT_2),
        ({1: BUSY, 2: FULL, 3: FULL}, {}, SPLIT_2),
        # The two emptiest.
        ({1: IDLE, 2: IDLE}, {}, MERGE_1_INTO_2),
        ({1: Size(1, 0), 2: Size(2, 0), 3: IDLE}, {}, MERGE_1_INTO_2),
        ({1: IDLE, 2: BUSY}, {}, None),
        ({1: IDLE, 2: Size(400, 0)}, {}, None),
        ({1: IDLE, 2: Size(0, 40)}, {}, None),
        # Never below a number of shards, never while one is full or may be.
        ({1: IDLE, 2: IDLE}, {"shards_min": 2}, None),
        ({1: IDLE, 2: IDLE, 3: IDLE}, {"shards_min": 2}, MERGE_1_INTO_2),
        ({1: IDLE, 2: IDLE, 3: FULL}, {}, ("split", 3, 0)),
        ({1: IDLE}, {"shards_min": 0}, None),
    ],
)
def test_the_table_of_the_rule(
    sizes: dict[int, Size], values: dict, expected: tuple[str, int, int] | None
) -> None:
    assert decided(sizes, **values) == expected


def test_a_shard_that_is_full_for_a_short_time_keeps_others_from_merging() -> None:
    sizes = {1: IDLE, 2: IDLE, 3: FULL}
    since = observed(Since(), {**sizes, 3: BUSY}, LIMITS, 0)
    since = observed(since, sizes, LIMITS, SHARD_IDLE_MS)
    state = cluster(3)

    assert (
        next_wish(
            since, sizes, LIMITS, state.plans, state.shard_map, 1, Moment(SHARD_IDLE_MS, 9_000_000)
        )
        is None
    )


def test_a_shard_that_is_not_full_in_between_begins_anew() -> None:
    since = observed(Since(), {1: FULL}, LIMITS, 1_000)
    since = observed(since, {1: BUSY}, LIMITS, 2_000)
    since = observed(since, {1: FULL}, LIMITS, 3_000)
    assert since.full_ms == {1: 3_000}

    assert observed(since, {}, LIMITS, 4_000) == Since(), "its size is not known any more"


@pytest.mark.parametrize(
    ("phase", "is_automatic", "ago_ms", "is_pause"),
    [
        (PlanPhase.RUNNING, False, 0, True),
        (PlanPhase.STOPPING, True, 0, True),
        (PlanPhase.DONE, True, SHARD_PLAN_PAUSE_MS - 1, True),
        (PlanPhase.DONE, True, SHARD_PLAN_PAUSE_MS, False),
        (PlanPhase.STOPPED, True, SHARD_PLAN_PAUSE_MS, True),
        (PlanPhase.STOPPED, True, SHARD_PLAN_FAILED_PAUSE_MS, False),
        (PlanPhase.DONE, False, 0, False),
        (PlanPhase.STOPPED, False, 0, False),
    ],
)
def test_there_is_a_pause_behind_a_plan(
    phase: PlanPhase, is_automatic: bool, ago_ms: int, is_pause: bool
) -> None:
    plan = Plan(1, PlanKind.SPLIT, phase, is_automatic=is_automatic)
    if plan.has_ended:
        plan = dataclasses.replace(plan, ended_at_ms=9_000_000 - ago_ms)
    state = fold_events(cluster(2), [PlanChanged(plan)])

    assert (decided({1: BUSY, 2: FULL}, state=state) is None) == is_pause


def test_shards_max_is_not_exceeded_unless_a_retired_shard_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(automatic, "SHARDS_MAX", 2)
    assert decided({1: BUSY, 2: FULL}) is None
    monkeypatch.setattr(automatic, "SHARDS_MAX", 3)
    assert decided({1: BUSY, 2: FULL}) == SPLIT_2

    retired = Plan(1, PlanKind.MERGE, PlanPhase.DONE, retired=(3,))
    state = fold_events(cluster(3), [PlanChanged(retired)])
    # It has slots still, of a merge that was stopped: it is no place, and it is not merged again.
    assert decided({1: BUSY, 2: FULL, 3: IDLE}, state=state) is None
    assert decided({1: IDLE, 2: BUSY, 3: IDLE}, state=state) is None


def test_no_split_causes_a_merge_and_no_merge_a_split() -> None:
    half = Size(FULL.topics // 2, 0)
    assert half.fullness(LIMITS) > SHARD_IDLE_FULLNESS
    assert decided({1: half, 2: half}) is None
    merged = Size(2 * IDLE.topics, 2 * IDLE.commands_per_second)
    assert merged.fullness(LIMITS) < 1


def test_people_are_told_why() -> None:
    state = cluster(2)
    sizes = {1: BUSY, 2: Size(1_234_567, 12.4)}
    since = observed(Since(), sizes, LIMITS, 0)

    wish = next_wish(since, sizes, LIMITS, state.plans, state.shard_map, 1, Moment(LONG, 9_000_000))

    assert wish.reason == "shard 2 has 1,234,567 topics and 12 commands a second"
