"""TransferShedder of the extensible load manager (PIP-192), with its defaults."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum, sqrt

from benchmarks.support.balance.bundles import Bundles
from benchmarks.support.balance.cluster import STEP_SECONDS, SimulatedCluster

TARGET_STD = 0.25
HITS = 3
"""The condition must hold in more rounds than this."""

PAIRS_MAX = 3
DELAY_SECONDS = 180
REPORT_OLD_SECONDS = 1_800
OVERLOADED = 0.85
TOP_BUNDLES = 10
ROUND_SECONDS = 60
EMA_OLD = 0.9
REPORT_TICK_SECONDS = 5
"""The average takes in a value each time a report might be written."""

REPORT_CHANGE = 0.1
REPORT_SECONDS_MAX = 15 * 60


@dataclass(slots=True)
class _Report:
    """What a broker wrote last."""

    ema: float
    throughput: float
    throughput_ema: float
    at_seconds: int
    bundles: int


class TransferShedder:
    name = "TransferShedder"

    def __init__(self, seed: int) -> None:
        self._bundles = Bundles(random.Random(seed))
        self._ema: dict[int, float] = {}
        self._throughput_ema: dict[int, float] = {}
        self._sampled: dict[int, tuple[float, float]] = {}
        self._reports: dict[int, _Report] = {}
        self._unloaded_at: dict[int, int] = {}
        self._hits = 0

    def start(self, cluster: SimulatedCluster) -> None:
        self._bundles.start(cluster)

    def lost(self, cluster: SimulatedCluster, broker: int) -> None:
        """Forget the broker; its bundles go to the other brokers at random."""
        for kept in (self._ema, self._throughput_ema, self._sampled, self._reports):
            kept.pop(broker, None)
        self._unloaded_at.pop(broker, None)
        self._bundles.lost(cluster, broker)

    def step(self, cluster: SimulatedCluster, now_seconds: int) -> None:
        self._measure(cluster, now_seconds)
        if now_seconds % ROUND_SECONDS == 0:
            self._round(cluster, now_seconds)

    def _measure(self, cluster: SimulatedCluster, now_seconds: int) -> None:
        usages, loads = cluster.usages(), cluster.loads()
        kept = EMA_OLD ** (STEP_SECONDS / REPORT_TICK_SECONDS)
        for broker in cluster.brokers:
            if now_seconds % ROUND_SECONDS == 0 or broker not in self._sampled:
                self._sampled[broker] = usages[broker], loads[broker]
            usage, load = self._sampled[broker]
            ema = kept * self._ema.get(broker, usage) + (1 - kept) * usage
            throughput_ema = kept * self._throughput_ema.get(broker, load) + (1 - kept) * load
            self._ema[broker], self._throughput_ema[broker] = ema, throughput_ema
            bundles = len(self._bundles.at(broker))
            last = self._reports.get(broker)
            if (
                last is None
                or now_seconds - last.at_seconds >= REPORT_SECONDS_MAX
                or abs(load - last.throughput) > REPORT_CHANGE * last.throughput
                or abs(bundles - last.bundles) > REPORT_CHANGE * last.bundles
            ):
                self._reports[broker] = _Report(ema, load, throughput_ema, now_seconds, bundles)

    def _round(self, cluster: SimulatedCluster, now_seconds: int) -> None:
        reports = self._fresh(cluster, now_seconds)
        if reports is None:
            return
        emas = {broker: report.ema for broker, report in reports.items()}
        order = sorted(emas, key=lambda broker: emas[broker])
        mean = fsum(emas.values()) / len(emas)
        squares = fsum(ema * ema for ema in emas.values())
        if not self._is_wanted(reports, order, mean, squares):
            self._hits = 0
            return
        self._hits += 1
        if self._hits <= HITS:
            return
        traffic = self._bundles.traffic(cluster)
        pairs = 0
        while pairs < PAIRS_MAX and len(order) > 1:
            if not self._is_wanted(reports, order, mean, squares):
                return
            high, low = order.pop(), order[0]
            offload = (emas[high] - emas[low]) / 2
            if not self._transfer(cluster, reports, traffic, high, low, now_seconds):
                continue
            pairs += 1
            order.pop(0)
            squares -= emas[high] ** 2 + emas[low] ** 2
            squares += max(0.0, emas[high] - offload) ** 2 + (emas[low] + offload) ** 2

    def _fresh(self, cluster: SimulatedCluster, now_seconds: int) -> dict[int, _Report] | None:
        """Return the reports, None if this round is left out."""
        for broker, at_seconds in list(self._unloaded_at.items()):
            report = self._reports.get(broker)
            if report is not None and report.at_seconds - at_seconds < DELAY_SECONDS:
                return None
            del self._unloaded_at[broker]
        if any(broker not in self._reports for broker in cluster.brokers):
            return None
        return {
            broker: report
            for broker, report in self._reports.items()
            if cluster.is_alive[broker] and now_seconds - report.at_seconds <= REPORT_OLD_SECONDS
        }

    def _is_wanted(
        self, reports: dict[int, _Report], order: list[int], mean: float, squares: float
    ) -> bool:
        low, high = reports[order[0]], reports[order[-1]]
        part = min(0.5, TARGET_STD / 2)
        return (
            sqrt(abs(squares / len(reports) - mean * mean)) > TARGET_STD
            or low.ema < mean * part
            or low.throughput_ema < high.throughput_ema * part
            or (high.ema > OVERLOADED and high.ema > mean + TARGET_STD)
        )

    def _transfer(
        self,
        cluster: SimulatedCluster,
        reports: dict[int, _Report],
        traffic: dict[int, float],
        high: int,
        low: int,
        now_seconds: int,
    ) -> bool:
        """Move top bundles of one broker to another; return whether any moved."""
        high_load, low_load = reports[high].throughput, reports[low].throughput
        target = (
            high_load * (reports[high].ema - reports[low].ema) / 2 / max(1e-9, reports[high].ema)
        )
        top = self._top(traffic, high)
        back = iter(self._top(traffic, low))
        moved = 0.0
        left = len(top)
        for bundle in top if left > 1 else []:
            if not self._bundles.is_free(bundle, now_seconds):
                continue
            if left <= 1:
                break
            swapped: list[int] = []
            if moved + traffic[bundle] > target:
                swapped = _swap(
                    traffic, bundle, back, high_load - moved, low_load + moved, high_load
                )
                if not swapped:
                    break
            for each in swapped:
                self._bundles.move(cluster, each, high, now_seconds)
            self._bundles.move(cluster, bundle, low, now_seconds)
            moved += traffic[bundle]
            left -= 1
        if moved:
            self._unloaded_at[high] = now_seconds
        return moved > 0

    def _top(self, traffic: dict[int, float], broker: int) -> list[int]:
        own = [bundle for bundle in self._bundles.at(broker) if traffic[bundle] > 0]
        return sorted(own, key=lambda bundle: -traffic[bundle])[:TOP_BUNDLES]


def _swap(
    traffic: dict[int, float],
    bundle: int,
    back: Iterator[int],
    high_now: float,
    low_now: float,
    high_before: float,
) -> list[int]:
    """Return bundles of the lower broker that make the move of a large one good, [] if none do."""
    high, low = high_now - traffic[bundle], low_now + traffic[bundle]
    chosen: list[int] = []
    for each in back:
        new_high, new_low = high + traffic[each], low - traffic[each]
        if new_high < high_before and new_low < high_before:
            chosen.append(each)
            high, low = new_high, new_low
            if low <= high and high < 0.75 * high_before:
                return chosen
    return []
