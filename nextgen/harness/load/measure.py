"""Latencies and their statistics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Latencies:
    """Durations in milliseconds, all kept: a run measures thousands, not millions."""

    samples_ms: list[float] = field(default_factory=list)

    def add(self, seconds: float) -> None:
        self.samples_ms.append(seconds * 1000)

    def summary(self) -> dict[str, float]:
        """Return p50, p99 and max in milliseconds; zeros without samples."""
        ordered = sorted(self.samples_ms)
        return {
            "p50": quantile(ordered, 0.50),
            "p99": quantile(ordered, 0.99),
            "max": round(ordered[-1], 3) if ordered else 0.0,
        }


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Return the nearest-rank quantile of ascending values, rounded to a microsecond."""
    if not ordered:
        return 0.0
    rank = max(1, -(-len(ordered) * fraction // 1))
    return round(ordered[int(rank) - 1], 3)


def quantiles(prefix: str, samples_ms: Iterable[float]) -> dict[str, float | None]:
    """Return p50, p99 and max, named with ``prefix``; None without samples."""
    ordered = sorted(samples_ms)
    return {
        f"{prefix}{label}_ms": quantile(ordered, share) if ordered else None
        for label, share in (("p50", 0.50), ("p99", 0.99), ("max", 1.0))
    }


def microsecond_counts(samples_s: Iterable[float]) -> dict[str, int]:
    """Return the number of durations by whole microseconds, for millions of samples.

    The keys are text, for JSON. Counts of several processes can be added up.
    """
    counts = Counter(int(seconds * 1e6) for seconds in samples_s)
    return {str(microseconds): count for microseconds, count in counts.items()}


def summary_of_counts(groups: Iterable[Mapping[str, int]]) -> dict[str, float]:
    """Return p50, p99 and max in milliseconds of microsecond counts; zeros without samples."""
    total: Counter[int] = Counter()
    for group in groups:
        for microseconds, count in group.items():
            total[int(microseconds)] += count
    ordered = sorted(total.items())
    return {
        "p50": _count_quantile(ordered, 0.50),
        "p99": _count_quantile(ordered, 0.99),
        "max": ordered[-1][0] / 1000 if ordered else 0.0,
    }


def _count_quantile(ordered: Sequence[tuple[int, int]], fraction: float) -> float:
    rank = max(1, math.ceil(sum(count for _, count in ordered) * fraction))
    seen = 0
    for microseconds, count in ordered:
        seen += count
        if seen >= rank:
            return microseconds / 1000
    return 0.0
