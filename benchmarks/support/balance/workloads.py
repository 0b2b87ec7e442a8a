"""What the topics do: the same for each strategy, from one seed.

An adversary looks at where the topics are, so that what it does differs by strategy; its rule does
not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from math import fsum

from benchmarks.support.balance.cluster import (
    BROKER_BYTES_PER_SECOND,
    BUNDLES_PER_NAMESPACE,
    STEP_SECONDS,
    SimulatedCluster,
)

MEAN_USAGE = 0.5
NOISE = 0.2
"""Each topic's traffic is off by up to so much from one step to the next."""

HOUR = 3_600
BURST_FACTOR = 10.0
BURST_SECONDS_MEAN = 300
BURSTING = 0.01
"""Part of the topics that has a burst at a time."""

HOT_SECONDS = 900
HOT_PART = 0.6
"""Traffic of the topic that follows the emptiest broker, of the mean broker's."""


@dataclass(frozen=True, slots=True)
class Workload:
    """``shape`` changes the rates of a step, given the cluster, the time and random numbers."""

    name: str
    hours: float
    skew: float
    """Exponent of the Zipf distribution of the topics' traffic."""

    shape: Callable[[Run], None] | None = None
    capacities: tuple[float, ...] = (1.0,) * 10
    dead_at_first: tuple[int, ...] = ()
    events: tuple[tuple[float, str, int], ...] = ()
    """Hour, "dies" or "comes", broker."""

    settled_after_hours: float = 1.0
    """The imbalance is measured from then on."""

    topics: int = 2_000
    namespaces: int = 20


class Run:
    """One workload under one strategy."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload = workload
        self.random = random.Random(f"{workload.name}/{seed}")
        ranks = list(range(1, workload.topics + 1))
        self.random.shuffle(ranks)
        weights = [rank**-workload.skew for rank in ranks]
        alive = [broker not in workload.dead_at_first for broker in range(len(workload.capacities))]
        capacity = sum(
            each for each, is_alive in zip(workload.capacities, alive, strict=True) if is_alive
        )
        scale = MEAN_USAGE * BROKER_BYTES_PER_SECOND * capacity / fsum(weights)
        self.base = [weight * scale for weight in weights]
        self.tenants = [topic % workload.namespaces for topic in range(workload.topics)]
        self.cluster = SimulatedCluster(
            list(workload.capacities),
            alive,
            [
                tenant * BUNDLES_PER_NAMESPACE + self.random.randrange(BUNDLES_PER_NAMESPACE)
                for tenant in self.tenants
            ],
            list(self.base),
        )
        self.now_seconds = 0
        self.until: dict[int, float] = {}
        """Topics that have a burst, until when."""

        self.hot = -1
        self.groups: list[int] = []
        self.phases = [self.random.random() for _ in range(workload.namespaces)]

    def advance(self) -> list[tuple[str, int]]:
        """Set the rates of the next step; return what happens to brokers at its beginning."""
        self.now_seconds += STEP_SECONDS
        chance = self.random.random
        rates = [rate * (1 - NOISE + 2 * NOISE * chance()) for rate in self.base]
        self.cluster.begin_step(rates)
        if self.workload.shape is not None:
            self.workload.shape(self)
            self.cluster.begin_step(self.cluster.rates)
        now_hours = self.now_seconds / HOUR
        before_hours = now_hours - STEP_SECONDS / HOUR
        happened = []
        for hours, what, broker in self.workload.events:
            if before_hours < hours <= now_hours:
                self.cluster.is_alive[broker] = what == "comes"
                happened.append((what, broker))
        return happened


def _bursts(run: Run) -> None:
    begins = BURSTING * len(run.base) * STEP_SECONDS / BURST_SECONDS_MEAN
    for _ in range(int(begins) + (run.random.random() < begins % 1)):
        topic = run.random.randrange(len(run.base))
        run.until[topic] = run.now_seconds + run.random.expovariate(1 / BURST_SECONDS_MEAN)
    run.until = {topic: end for topic, end in run.until.items() if end > run.now_seconds}
    for topic in run.until:
        run.cluster.rates[topic] *= BURST_FACTOR


def _days(run: Run) -> None:
    day = run.now_seconds / (24 * HOUR)
    factors = [1 + 0.8 * math.sin(2 * math.pi * (day + phase)) for phase in run.phases]
    rates = run.cluster.rates
    run.cluster.rates = [
        rate * factors[tenant] for rate, tenant in zip(rates, run.tenants, strict=True)
    ]


def _follows_the_emptiest(run: Run) -> None:
    cluster = run.cluster
    extra = HOT_PART * fsum(run.base) / len(cluster.brokers)
    if run.hot < 0 or run.now_seconds % HOT_SECONDS == 0:
        loads = cluster.loads()
        if run.hot >= 0:
            loads[cluster.places[run.hot]] += extra
        emptiest = min(cluster.brokers, key=lambda broker: loads[broker])
        there = [topic for topic, place in enumerate(cluster.places) if place == emptiest]
        run.hot = run.random.choice(there or range(len(run.base)))
    cluster.rates[run.hot] += extra


def _flaps(period_seconds: int) -> Callable[[Run], None]:
    def shape(run: Run) -> None:
        # Topics that began at a broker of an even number, and the others, swap their traffic.
        run.groups = run.groups or [place % 2 for place in run.cluster.places]
        high = run.now_seconds // period_seconds % 2
        run.cluster.rates = [
            rate * (1.4 if group == high else 0.6)
            for rate, group in zip(run.cluster.rates, run.groups, strict=True)
        ]

    return shape


WORKLOADS = (
    Workload("skewed", 6, 0.9),
    Workload("bursty", 6, 0.6, _bursts),
    Workload("diurnal", 24, 0.7, _days),
    Workload("hot topic follows the emptiest broker", 6, 0.6, _follows_the_emptiest),
    Workload("flapping each round", 6, 0.6, _flaps(60)),
    Workload("flapping each four rounds", 6, 0.6, _flaps(240)),
    Workload(
        "a new broker",
        6,
        0.6,
        dead_at_first=(9,),
        events=((1.0, "comes", 9),),
        settled_after_hours=2.0,
    ),
    Workload(
        "a broker returns",
        6,
        0.6,
        events=((1.0, "dies", 3), (1.5, "comes", 3)),
        settled_after_hours=2.5,
    ),
    Workload("capacities of one and two", 6, 0.6, capacities=(1.0, 2.0) * 5),
)

SHORT = (
    Workload("skewed, short", 1, 0.9, settled_after_hours=0.5, topics=400, namespaces=4),
    Workload(
        "a new broker, short",
        1,
        0.6,
        capacities=(1.0,) * 5,
        dead_at_first=(4,),
        events=((0.25, "comes", 4),),
        settled_after_hours=0.75,
        topics=400,
        namespaces=4,
    ),
)
"""What the unit tests run and compare with the numbers of the last whole run."""
