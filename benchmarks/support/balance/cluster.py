"""The simulated cluster: topics with traffic, brokers with capacity, who has what."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum
from typing import Protocol

STEP_SECONDS = 30
BROKER_BYTES_PER_SECOND = 100e6
"""Traffic, in and out, at which a broker of capacity one has no processor time left."""

BUNDLES_PER_NAMESPACE = 32
MESSAGE_BYTES = 1_000


@dataclass(slots=True)
class SimulatedCluster:
    """``rates`` are bytes a second of each topic; ``places`` its broker, by number."""

    capacities: list[float]
    """By broker; 1.0 is one of ``BROKER_BYTES_PER_SECOND``."""

    is_alive: list[bool]
    bundles: list[int]
    """By topic: topics of a namespace are hashed to its bundles."""

    rates: list[float]
    places: list[int] = field(default_factory=list)
    topic_moves: int = 0
    bundle_moves: int = 0
    _loads: list[float] | None = None
    """Measured once in each step: a strategy sees its moves in the next one."""

    @property
    def brokers(self) -> list[int]:
        return [broker for broker, is_alive in enumerate(self.is_alive) if is_alive]

    def move(self, topic: int, broker: int) -> None:
        """Move one topic of a live broker to another one."""
        self.places[topic] = broker
        self.topic_moves += 1

    def begin_step(self, rates: list[float]) -> None:
        """Give the topics other traffic, and have it measured anew."""
        self.rates, self._loads = rates, None

    def loads(self) -> list[float]:
        """Return the traffic of each broker at the beginning of the step."""
        if self._loads is None:
            self._loads = [0.0] * len(self.capacities)
            for rate, place in zip(self.rates, self.places, strict=True):
                self._loads[place] += rate
        return list(self._loads)

    def usages(self) -> list[float]:
        """Return how busy each broker is, 0 to 1: what its operating system would say."""
        return [
            min(1.0, load / (capacity * BROKER_BYTES_PER_SECOND))
            for load, capacity in zip(self.loads(), self.capacities, strict=True)
        ]

    def imbalance(self) -> float:
        """Return the highest load by capacity as a multiple of the mean of all live brokers."""
        loads, brokers = self.loads(), self.brokers
        mean = fsum(self.rates) / sum(self.capacities[broker] for broker in brokers)
        return max(loads[broker] / self.capacities[broker] for broker in brokers) / mean

    def best_possible(self) -> float:
        """Return a bound below which no placement gets: the busiest topic is at one broker."""
        total = sum(self.capacities[broker] for broker in self.brokers)
        largest = max(self.capacities[broker] for broker in self.brokers)
        return max(1.0, max(self.rates) / largest / (fsum(self.rates) / total))


class Strategy(Protocol):
    """One way to place topics and to move them."""

    name: str

    def start(self, cluster: SimulatedCluster) -> None:
        """Place all topics."""
        ...

    def lost(self, cluster: SimulatedCluster, broker: int) -> None:
        """Place the topics of a broker that died. These are no moves."""
        ...

    def step(self, cluster: SimulatedCluster, now_seconds: int) -> None:
        """Look at the cluster and move what is to be moved."""
        ...
