"""Pulsar's units of placement: bundles, and what its brokers know of their traffic."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import fsum

from benchmarks.support.balance.cluster import SimulatedCluster

SHORT_TERM_SAMPLES = 10
GRACE_SECONDS = 30 * 60


@dataclass(slots=True)
class Bundles:
    """Where the bundles are. Topics move with their bundle, all at once."""

    chance: random.Random
    places: dict[int, int] = field(default_factory=dict)
    topics: dict[int, list[int]] = field(default_factory=dict)
    moved_at: dict[int, int] = field(default_factory=dict)
    """By bundle: when it moved. It stays for ``GRACE_SECONDS``."""

    def start(self, cluster: SimulatedCluster) -> None:
        """Place each bundle that has topics at random, evenly by count."""
        for topic, bundle in enumerate(cluster.bundles):
            self.topics.setdefault(bundle, []).append(topic)
        cluster.places = [0] * len(cluster.bundles)
        order = sorted(self.topics)
        self.chance.shuffle(order)
        brokers = cluster.brokers
        for number, bundle in enumerate(order):
            self._put(cluster, bundle, brokers[number % len(brokers)])

    def lost(self, cluster: SimulatedCluster, broker: int) -> None:
        """Place the bundles of a dead broker at random."""
        for bundle, place in self.places.items():
            if place == broker:
                self._put(cluster, bundle, self.chance.choice(cluster.brokers))

    def move(self, cluster: SimulatedCluster, bundle: int, broker: int, now_seconds: int) -> None:
        cluster.bundle_moves += 1
        cluster.topic_moves += len(self.topics[bundle])
        self.moved_at[bundle] = now_seconds
        self._put(cluster, bundle, broker)

    def is_free(self, bundle: int, now_seconds: int) -> bool:
        """Return whether the bundle may move: its last move is long ago."""
        moved_at = self.moved_at.get(bundle)
        return moved_at is None or now_seconds - moved_at >= GRACE_SECONDS

    def traffic(self, cluster: SimulatedCluster) -> dict[int, float]:
        """Return the bytes a second of each bundle."""
        return {
            bundle: fsum(cluster.rates[topic] for topic in topics)
            for bundle, topics in self.topics.items()
        }

    def at(self, broker: int) -> list[int]:
        return [bundle for bundle, place in self.places.items() if place == broker]

    def _put(self, cluster: SimulatedCluster, bundle: int, broker: int) -> None:
        self.places[bundle] = broker
        for topic in self.topics[bundle]:
            cluster.places[topic] = broker


@dataclass(slots=True)
class ShortTerm:
    """Averages of the last samples, one a minute, as the classic manager keeps them per bundle."""

    averages: dict[int, float] = field(default_factory=dict)
    samples: int = 0

    def add(self, traffic: dict[int, float]) -> None:
        self.samples = min(self.samples + 1, SHORT_TERM_SAMPLES)
        part = 1 / self.samples
        for bundle, rate in traffic.items():
            before = self.averages.get(bundle, rate)
            self.averages[bundle] = (1 - part) * before + part * rate
