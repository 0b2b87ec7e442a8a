"""Runs a workload under a strategy, and measures it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchmarks.support.balance.avg_shedder import AvgShedder
from benchmarks.support.balance.by_topic import ByTopic, NoBalance
from benchmarks.support.balance.cluster import STEP_SECONDS, Strategy
from benchmarks.support.balance.transfer_shedder import TransferShedder
from benchmarks.support.balance.workloads import HOUR, WORKLOADS, Run, Workload

STRATEGIES: tuple[Callable[[int], Strategy], ...] = (
    ByTopic,
    AvgShedder,
    TransferShedder,
    NoBalance,
)

GOAL = 1.15
OURS_MOVE_MS = 13.0
"""Gap of a producer when its topic moves here, p50: benchmarks/README.md, `handover`."""

STOCK_MOVE_MS = 109.0
"""The same in a bundle transfer of the stock extensible load manager, p50, measured on the same
machine. The classic one, in which AvgShedder runs, has no transfer and longer gaps: they count like
these all the same."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run shows. Imbalances are of the time behind ``settled_after_hours``."""

    workload: str
    strategy: str
    imbalance: float
    """Highest load by capacity as a multiple of the mean: the average over time."""

    imbalance_p99: float
    best_possible: float
    """A bound for any placement: the busiest topic is at one broker. The average over time."""

    topic_moves: int
    bundle_moves: int
    unavailable_topic_seconds: float
    minutes_to_goal: float | None
    """From the last event of the workload, or its beginning, until the imbalance is within the
    goal for the first time."""

    course: tuple[float, ...] = field(default=(), compare=False)
    """The imbalance of each step."""


def run(workload: Workload, make: Callable[[int], Strategy], seed: int) -> Outcome:
    """Run a workload from its beginning to its end."""
    running, strategy = Run(workload, seed), make(seed)
    cluster = running.cluster
    strategy.start(cluster)
    course, bounds = [], []
    for _ in range(round(workload.hours * HOUR / STEP_SECONDS)):
        for what, broker in running.advance():
            if what == "dies":
                strategy.lost(cluster, broker)
        course.append(cluster.imbalance())
        bounds.append(cluster.best_possible())
        strategy.step(cluster, running.now_seconds)
    first = round(workload.settled_after_hours * HOUR / STEP_SECONDS)
    settled = sorted(course[first:])
    move_ms = OURS_MOVE_MS if cluster.bundle_moves == 0 else STOCK_MOVE_MS
    begin = round(max([hours for hours, *_ in workload.events], default=0) * HOUR / STEP_SECONDS)
    within = next((place for place in range(begin, len(course)) if course[place] <= GOAL), None)
    return Outcome(
        workload.name,
        strategy.name,
        round(sum(settled) / len(settled), 3),
        round(settled[int(0.99 * len(settled))], 3),
        round(sum(bounds[first:]) / len(settled), 3),
        cluster.topic_moves,
        cluster.bundle_moves,
        round(cluster.topic_moves * move_ms / 1000, 1),
        None if within is None else (within - begin) * STEP_SECONDS / 60,
        tuple(course),
    )


def compare(seeds: Iterable[int], workloads: Iterable[Workload] = WORKLOADS) -> list[Outcome]:
    """Run each workload under each strategy, with the same seeds."""
    seeds = list(seeds)
    return [
        mean([run(workload, make, seed) for seed in seeds])
        for workload in workloads
        for make in STRATEGIES
    ]


def mean(runs: list[Outcome]) -> Outcome:
    """Return the mean of runs with several seeds; the course is the first one's."""
    count = len(runs)
    minutes = [each.minutes_to_goal for each in runs if each.minutes_to_goal is not None]
    return replace(
        runs[0],
        imbalance=round(sum(each.imbalance for each in runs) / count, 3),
        imbalance_p99=round(sum(each.imbalance_p99 for each in runs) / count, 3),
        best_possible=round(sum(each.best_possible for each in runs) / count, 3),
        topic_moves=round(sum(each.topic_moves for each in runs) / count),
        bundle_moves=round(sum(each.bundle_moves for each in runs) / count),
        unavailable_topic_seconds=round(
            sum(each.unavailable_topic_seconds for each in runs) / count, 1
        ),
        minutes_to_goal=sum(minutes) / count if len(minutes) == count else None,
    )


def shown(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome for JSON."""
    values = asdict(outcome)
    del values["course"]
    return values
