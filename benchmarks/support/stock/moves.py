"""Moves one topic after the other under stock producers, and finds who noticed."""

from __future__ import annotations

import asyncio
import itertools
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.stock.client_log import Connected, connected_in
from benchmarks.support.stock.placements import Placement, names_in
from nextgen.harness.load.measure import quantiles
from nextgen.harness.load.pulsar.traffic import Traffic, TrafficPlan

MESSAGE_BYTES = 100
WARM_MOVES = 12
"""Moves that are not counted: compilers, and each broker's first topic of the namespace."""

SETTLE_S = 3.0
WINDOW_S = 0.5
"""At least so long after a move began its effects are looked for; also the length of a window in
which nothing moves."""

TAIL_S = 0.25
"""From the answer to a move until its effects are over."""

PAUSE_S = 0.5
GAP_MS_MAX = 20.0
"""A longer gap of a topic that was not moved counts as a disturbance."""

LOG = "client-publish.log"
ACCOUNTS = ("sent", "lost", "out_of_order", "duplicated", "redelivered", "failed", "unanswered")


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which one topic was moved, "" if none was."""

    moved: str
    begin_s: float
    end_s: float
    call_ms: float = 0.0


async def measure_moves(
    placement: Placement, *, topics: int, moves: int, interval_ms: float
) -> dict[str, Any]:
    """Return how long the moved topic's producer waited, and what became of the other topics.

    Raises:
        CheckFailed: A move was refused.
        MetadataError: A client gave up.
    """
    names = names_in(placement.namespace, "moved", topics)
    with tempfile.TemporaryDirectory(prefix="nextgen-clients-") as folder:
        plan = TrafficPlan(
            placement.service_url,
            tuple(names),
            interval_ms,
            MESSAGE_BYTES,
            Path(folder),
            logs_connections=True,
        )
        traffic = Traffic(plan)
        try:
            await traffic.start()
            still, moved = await _move_all(placement, traffic, names, moves)
            result = await traffic.finish()
        finally:
            await traffic.stop()
        connected = connected_in(Path(folder) / LOG)
    return report(result, still, moved, connected)


async def _move_all(
    placement: Placement, traffic: Traffic, names: list[str], moves: int
) -> tuple[list[Window], list[Window]]:
    for number in range(WARM_MOVES):
        await _move(placement, traffic, names[number % len(names)])
    await asyncio.sleep(SETTLE_S)
    still = []
    for _ in range(moves):
        begin_s = time.monotonic()
        await asyncio.sleep(WINDOW_S)
        still.append(Window("", begin_s, time.monotonic()))
        await _strike(traffic, still[-1], names)
    moved = []
    for number in range(moves):
        window = await _move(placement, traffic, names[number % len(names)])
        moved.append(window)
        await _strike(traffic, window, [window.moved])
        await _strike(traffic, window, [each for each in names if each != window.moved])
        traffic.check()
        await asyncio.sleep(PAUSE_S)
    return still, moved


async def _move(placement: Placement, traffic: Traffic, topic: str) -> Window:
    """Move a topic to the next broker, in turn."""
    (at,) = await placement.brokers_of([topic])
    begin_s = time.monotonic()
    await placement.move([topic], at % 3 + 1)
    answered_s = time.monotonic()
    await asyncio.sleep(max(TAIL_S, begin_s + WINDOW_S - answered_s))
    window = Window(topic, begin_s, time.monotonic(), 1_000 * (answered_s - begin_s))
    traffic.topics_moved(window.begin_s, window.end_s)
    return window


async def _strike(traffic: Traffic, window: Window, topics: Sequence[str]) -> None:
    length_ms = round(1_000 * (window.end_s - window.begin_s))
    await traffic.struck(window.begin_s, topics, window_ms=length_ms)


def report(
    result: dict[str, Any],
    still: Sequence[Window],
    moved: Sequence[Window],
    connected: Sequence[Connected],
) -> dict[str, Any]:
    """Return the figures. Pure."""
    gaps = [strike["gaps_ms"] for strike in result["strikes"]]
    of_still, of_moves = gaps[: len(still)], gaps[len(still) :]
    of_moved, of_others = of_moves[::2], of_moves[1::2]
    # A producer that is late is of the last move before it.
    begins = [each.begin_s for each in moved] + [math.inf]
    again = [
        (window.moved, {each.topic for each in connected if begin_s <= each.at_s < until_s})
        for window, (begin_s, until_s) in zip(moved, itertools.pairwise(begins), strict=True)
    ]
    others = sum(len(found - {topic}) for topic, found in again)
    return {
        "moves": len(moved),
        "others": len(of_others[0]) if of_others else 0,
        **quantiles("gap_", [gap for each in of_moved for gap in each]),
        **quantiles("still_gap_", [gap for each in of_still for gap in each]),
        **quantiles("others_gap_", [gap for each in of_others for gap in each]),
        "call_p50_ms": round(statistics.median(each.call_ms for each in moved), 1),
        "moved_connected_again": sum(topic in found for topic, found in again),
        "others_connected_again": others,
        # In a move, beside windows of about its length in which nothing moved.
        "others_above_20_ms": _above(of_others),
        "still_above_20_ms": _above(of_still),
        **{name: result[name] for name in ACCOUNTS},
        "first_failure": result["first_failure"],
        "examples": result["examples"],
    }


def _above(windows: Sequence[Sequence[float]]) -> float:
    """Return how many topics had a long gap, in a window."""
    counts = [sum(gap > GAP_MS_MAX for gap in gaps) for gaps in windows]
    return round(sum(counts) / len(counts), 3) if counts else 0.0
