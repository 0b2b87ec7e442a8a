"""AvgShedder as Pulsar 5.0 has it by default, for shedding and placement (PIP-364).

score of each broker ─▶ pairs: highest with lowest, second with second, … ─▶ hits
  ─▶ bundles of at most a fifth of the pair's difference, the largest that fit, to its lower one
"""

from __future__ import annotations

import random
from collections import Counter

from benchmarks.support.balance.bundles import Bundles, ShortTerm
from benchmarks.support.balance.cluster import MESSAGE_BYTES, SimulatedCluster

LOW_THRESHOLD = 15
HIGH_THRESHOLD = 40
LOW_HITS = 8
HIGH_HITS = 2
UNLOAD_PART_MAX = 0.2
UNLOAD_MESSAGES_MIN = 1_000
"""Messages a second below which nothing is unloaded for the sake of messages."""

UNLOAD_BYTES_MIN = 1024 * 1024
ROUND_SECONDS = 60


class AvgShedder:
    name = "AvgShedder"

    def __init__(self, seed: int) -> None:
        self._bundles = Bundles(random.Random(seed))
        self._short_term = ShortTerm()
        self._low: Counter[int] = Counter()
        self._high: Counter[int] = Counter()

    def start(self, cluster: SimulatedCluster) -> None:
        self._bundles.start(cluster)

    def lost(self, cluster: SimulatedCluster, broker: int) -> None:
        self._bundles.lost(cluster, broker)

    def step(self, cluster: SimulatedCluster, now_seconds: int) -> None:
        if now_seconds % ROUND_SECONDS:
            return
        self._short_term.add(self._bundles.traffic(cluster))
        usages, loads = cluster.usages(), cluster.loads()
        for low, high in self._pairs([100 * usage for usage in usages], cluster.brokers):
            hits = (self._high[low], self._high[high], self._low[low], self._low[high])
            if max(hits[:2]) < HIGH_HITS and max(hits[2:]) < LOW_HITS:
                continue
            for broker in (low, high):
                del self._high[broker], self._low[broker]
            wanted = (loads[high] - loads[low]) * UNLOAD_PART_MAX
            if wanted / MESSAGE_BYTES > UNLOAD_MESSAGES_MIN or wanted > UNLOAD_BYTES_MIN:
                self._unload(cluster, high, low, wanted, now_seconds)

    def _pairs(self, scores: list[float], brokers: list[int]) -> list[tuple[int, int]]:
        """Return the pairs that are too far apart, and count their hits."""
        # The comparison of the original is of whole points.
        order = sorted(brokers, key=lambda broker: int(scores[broker]))
        pairs = []
        for place in range((len(order) + 1) // 2):
            low, high = order[place], order[-1 - place]
            apart = scores[high] - scores[low]
            for broker in (low, high):
                if apart < LOW_THRESHOLD:
                    del self._low[broker]
                else:
                    self._low[broker] += 1
                if apart < HIGH_THRESHOLD:
                    del self._high[broker]
                else:
                    self._high[broker] += 1
            if apart >= LOW_THRESHOLD:
                pairs.append((low, high))
        return pairs

    def _unload(
        self, cluster: SimulatedCluster, high: int, low: int, wanted: float, now_seconds: int
    ) -> None:
        averages = self._short_term.averages
        for bundle in sorted(self._bundles.at(high), key=lambda each: -averages[each]):
            traffic = averages[bundle]
            if 0 < traffic <= wanted and self._bundles.is_free(bundle, now_seconds):
                wanted -= traffic
                # The target is remembered, so the lookup behind the unload places it there.
                self._bundles.move(cluster, bundle, low, now_seconds)
