"""Latencies and what is said about them."""

from __future__ import annotations

from collections.abc import Sequence
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
