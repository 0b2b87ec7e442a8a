"""Clocks that leap neither begin an operation nor keep one from being begun."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nextgen.kernel.limits.scalable import AUTO_SCALE_CLOCK_LEAP_MS
from tests.support.scalable.loads import COLD, HOT, IDLE, decided, report, set_policy, settle
from tests.support.scalable.shard import ScalableShard, in_scalable_shard
from tests.support.scenarios import run_by
from tests.support.shards.harness import VirtualClock

HOUR_MS = 3_600_000
WINDOW_S = 300


class WallClock:
    """The wall clock of every leader of a test, as it is set."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def read(self, clock: VirtualClock) -> int:
        return 1_700_000_000_000 + int(clock.monotonic() * 1000) + self.ahead_ms


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    wall = WallClock()
    monkeypatch.setattr(VirtualClock, "wall_ms", lambda clock: wall.read(clock))
    return wall


def leaps(shard: ScalableShard) -> float:
    metrics: Any = shard.harness.node_metrics.auto_scale
    return float(metrics.labels("clock_leap")._value.get())


@pytest.mark.parametrize("leap_ms", [HOUR_MS, -HOUR_MS])
@run_by(in_scalable_shard, segments=2)
async def test_a_leap_begins_the_window_of_a_merge_anew_and_is_counted(
    shard: ScalableShard, *, wall: WallClock, leap_ms: int
) -> None:
    await report(shard, {0: COLD, 1: IDLE})
    await asyncio.sleep(10)
    wall.ahead_ms = leap_ms
    await report(shard, {0: IDLE, 1: IDLE})
    await settle()
    assert await decided(shard) == [], "they are cold for ten seconds"
    assert leaps(shard) >= 1

    # Segment 1 has nothing to report: what the leader noted has the topic evaluated.
    await asyncio.sleep(2 * WINDOW_S)

    assert [each.reason for each in await decided(shard)] == ["cold"]


@pytest.mark.parametrize("ahead_ms", [AUTO_SCALE_CLOCK_LEAP_MS, AUTO_SCALE_CLOCK_LEAP_MS + 1])
@run_by(in_scalable_shard, segments=2)
async def test_a_step_of_auto_scale_clock_leap_ms_is_none_and_one_more_is_a_leap(
    shard: ScalableShard, *, wall: WallClock, ahead_ms: int
) -> None:
    await set_policy(shard, mergeWindowSeconds=50)
    await report(shard, {0: COLD, 1: IDLE})
    await settle(1)
    wall.ahead_ms = ahead_ms
    await report(shard, {0: IDLE})
    await settle()

    is_leap = ahead_ms > AUTO_SCALE_CLOCK_LEAP_MS
    assert bool(leaps(shard)) is is_leap
    assert bool(await decided(shard)) is not is_leap


@run_by(in_scalable_shard, segments=2)
async def test_what_a_leader_with_a_clock_far_ahead_recorded_holds_nothing_back(
    shard: ScalableShard, *, wall: WallClock
) -> None:
    """Its marks and its split are a year ahead of the next leader's clock."""
    wall.ahead_ms = 365 * 24 * HOUR_MS
    shard.stop_leader()
    await shard.start_leader()
    await set_policy(shard, mergeWindowSeconds=30)
    await report(shard, {0: HOT, 1: COLD})
    await settle()
    assert [each.kind for each in await decided(shard)] == ["split"]
    wall.ahead_ms = 0
    shard.stop_leader()
    await shard.start_leader()
    await report(shard, {each.segment_id: COLD for each in shard.topic.active})

    await settle(120)

    assert [each.kind for each in await decided(shard)][:2] == ["split", "merge"]
    assert leaps(shard) >= 1
