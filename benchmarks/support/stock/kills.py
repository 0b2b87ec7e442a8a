"""Kills a stock broker that has topics of both kinds, and times until their producers go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.support.stock.brokers import BROKERS, Clusters
from benchmarks.support.stock.moves import ACCOUNTS, MESSAGE_BYTES
from benchmarks.support.stock.placements import Placement, gather_at, names_in
from nextgen.harness.load.measure import quantiles
from nextgen.harness.load.pulsar.traffic import Traffic, TrafficPlan
from nextgen.runtime.lifecycle.exit_code import CheckFailed

SETTLE_S = 5.0
WINDOW_MS = 8_000
"""Gaps that begin or go on in this time after the kill are its effect."""

POLL_S = 0.02
ELSEWHERE_S_MAX = 240.0
RECOVERED_S_MAX = 240.0
RECOVERED_S = 2.0
"""For so long nothing may be behind, before a kill counts as over."""

IN_FLIGHT_OF_A_TOPIC_MAX = 3


class _Lane:
    """The topics of one placement under their clients."""

    def __init__(self, placement: Placement, topics: int, interval_ms: float) -> None:
        self.placement = placement
        self.topics = names_in(placement.namespace, "killed", topics)
        self.elsewhere_ms: list[list[float]] = []
        self._in_flight = 0
        plan = TrafficPlan(placement.service_url, tuple(self.topics), interval_ms, MESSAGE_BYTES)
        self.traffic = Traffic(plan, on_tick=self._heard)

    def _heard(self, tick: dict[str, Any]) -> None:
        self._in_flight = tick.get("in_flight", 0)

    async def gather(self, broker: int) -> None:
        begin_s = time.monotonic()
        await gather_at(self.placement, self.topics, broker)
        self.traffic.topics_moved(begin_s, time.monotonic())

    async def found_elsewhere(self, broker: int, killed_s: float) -> None:
        """Note for each topic when its lookup first named another broker."""
        left, found = list(self.topics), []
        while left:
            if time.monotonic() > killed_s + ELSEWHERE_S_MAX:
                raise CheckFailed(f"{self.placement.name}: {len(left)} topics stay at {broker}")
            places = await self.placement.brokers_of(left)
            after_ms = 1_000 * (time.monotonic() - killed_s)
            found += [after_ms for at in places if at not in (0, broker)]
            left = [topic for topic, at in zip(left, places, strict=True) if at in (0, broker)]
            await asyncio.sleep(POLL_S)
        self.elsewhere_ms.append([round(each, 1) for each in found])

    async def recovered(self) -> None:
        """Return when no producer has been behind for a while."""
        until_s = time.monotonic() + RECOVERED_S_MAX
        since_s = time.monotonic()
        while time.monotonic() - since_s < RECOVERED_S:
            self.traffic.check()
            if time.monotonic() > until_s:
                raise CheckFailed(f"{self.placement.name}: {self._in_flight} sends are in flight")
            if self._in_flight > IN_FLIGHT_OF_A_TOPIC_MAX * len(self.topics):
                since_s = time.monotonic()
            await asyncio.sleep(0.1)


async def measure_kills(
    clusters: Clusters,
    placements: Sequence[Placement],
    *,
    topics: int,
    kills: int,
    interval_ms: float,
) -> dict[str, Any]:
    """Return for each placement how long its producers waited for another broker.

    The topics of all placements are at the broker that is killed, so each kill strikes all of them.

    Raises:
        CheckFailed: Topics could not be gathered, or are not served again.
        MetadataError: A client gave up.
    """
    lanes = [_Lane(each, topics, interval_ms) for each in placements]
    try:
        for lane in lanes:
            await lane.traffic.start()
        for number in range(kills):
            await _kill(clusters, lanes, BROKERS[number % len(BROKERS)])
        results = [await lane.traffic.finish() for lane in lanes]
    finally:
        for lane in lanes:
            await lane.traffic.stop()
    return {
        lane.placement.name: _report(lane, result)
        for lane, result in zip(lanes, results, strict=True)
    }


async def _kill(clusters: Clusters, lanes: Sequence[_Lane], victim: int) -> None:
    for lane in lanes:
        await lane.gather(victim)
    await asyncio.sleep(SETTLE_S)
    killed_s = time.monotonic()
    await asyncio.to_thread(clusters.stock.brokers[victim].kill)
    for lane in lanes:
        await lane.traffic.broker_killed(killed_s, lane.topics, window_ms=WINDOW_MS)
    await asyncio.gather(*(lane.found_elsewhere(victim, killed_s) for lane in lanes))
    await asyncio.sleep(max(0.0, killed_s + WINDOW_MS / 1_000 + 1 - time.monotonic()))
    await asyncio.gather(*(lane.recovered() for lane in lanes))
    clusters.stock.start_broker(victim)
    await asyncio.to_thread(clusters.stock.wait_commanded, victim)


def _report(lane: _Lane, result: Mapping[str, Any]) -> dict[str, Any]:
    gaps = [strike["gaps_ms"] for strike in result["strikes"]]
    return {
        "kills": len(gaps),
        "topics": len(lane.topics),
        **quantiles("gap_", [gap for each in gaps for gap in each]),
        **quantiles("elsewhere_", [ms for each in lane.elsewhere_ms for ms in each]),
        "by_kill": [quantiles("gap_", each) for each in gaps],
        **{name: result[name] for name in ACCOUNTS},
        "first_failure": result["first_failure"],
        "examples": result["examples"],
    }
