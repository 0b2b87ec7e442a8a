"""The objective of lookups, minute by minute: the content of a window, and when it is bad.

    p99 <= 1 s          no lookup above 3 s                   errors <= 1 %

Errors are our failures. NOT_FOUND is an answer like any other. A lookup that took longer than 3 s
has failed, whatever its answer. Windows of several processes add up to that of their node, and
those of nodes to that of the cluster, because they are counts by fixed bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

LOOKUP_WINDOW_MS = 60_000
"""Length of a window: it begins with a whole minute of Unix time."""

LOOKUP_WINDOW_BOUNDS_MS = (1, 2, 5, 10, 25, 50, 100, 200, 500, 1_000, 2_000, 3_000)
"""Upper bounds of the classes of latency; the last class, above, has none. Stored counts use these
classes for ever: the verdict needs 1,000 and 3,000, the others are for people."""

LOOKUP_P99_MS_MAX = 1_000
"""The highest p99 of a good window."""

LOOKUP_MS_MAX = 3_000
"""A lookup that takes longer has failed."""

LOOKUP_ERRORS_PER_CENT_MAX = 1
"""The largest share of failed lookups in a good window, in hundredths."""

_SLOW_CLASSES = LOOKUP_WINDOW_BOUNDS_MS.index(LOOKUP_P99_MS_MAX) + 1
assert LOOKUP_WINDOW_BOUNDS_MS[-1] == LOOKUP_MS_MAX, "the last class are those that took too long"

LATENCY_CLASSES = len(LOOKUP_WINDOW_BOUNDS_MS) + 1
NO_LOOKUPS = (0,) * LATENCY_CLASSES


@dataclass(frozen=True, slots=True)
class LookupWindow:
    """The lookups that were answered within one minute, counted by name."""

    node_id: str
    """Id of the discovery node; empty for a sum over several."""

    process: str
    """One of the node's processes and its start; empty for several together."""

    began_at_ms: int
    """Unix time, a whole minute."""

    errors: int
    """Lookups that we failed, those that took too long included."""

    latency_counts: tuple[int, ...]
    """By the classes of ``LOOKUP_WINDOW_BOUNDS_MS``."""

    @property
    def lookups(self) -> int:
        return sum(self.latency_counts)

    @property
    def too_slow(self) -> int:
        return self.latency_counts[-1]

    @property
    def is_bad(self) -> bool:
        return bool(self.why_bad)

    @property
    def why_bad(self) -> str:
        """Return the bound that the window misses, in words; empty for a good window."""
        lookups, reasons = self.lookups, []
        slow = sum(self.latency_counts[_SLOW_CLASSES:])
        if slow * 100 > lookups:
            reasons.append(f"p99 above {LOOKUP_P99_MS_MAX} ms: {slow} of {lookups} were slower")
        if self.too_slow:
            reasons.append(f"{self.too_slow} took longer than {LOOKUP_MS_MAX} ms")
        if self.errors * 100 > lookups * LOOKUP_ERRORS_PER_CENT_MAX:
            limit = LOOKUP_ERRORS_PER_CENT_MAX
            reasons.append(f"{self.errors} of {lookups} failed, more than {limit} %")
        return "; ".join(reasons)

    def quantile_ms(self, per_cent: int) -> float:
        """Return the bound of the quantile's class, by nearest rank; 0 without lookups."""
        rank = -(-self.lookups * per_cent // 100)
        reached = 0
        bounds = (*LOOKUP_WINDOW_BOUNDS_MS, float("inf"))
        for bound, count in zip(bounds, self.latency_counts, strict=True):
            reached += count
            if count and reached >= rank:
                return bound
        return 0


def once_each(windows: Iterable[LookupWindow]) -> list[LookupWindow]:
    """Return the first window of each minute of a process, in the given order."""
    first: dict[tuple[str, str, int], LookupWindow] = {}
    for window in windows:
        first.setdefault((window.node_id, window.process, window.began_at_ms), window)
    return list(first.values())


def merged_windows(windows: Iterable[LookupWindow], node_id: str = "") -> dict[int, LookupWindow]:
    """Return the sum of the windows of each minute, by the minute's beginning, in order."""
    totals: dict[int, LookupWindow] = {}
    for window in windows:
        before = totals.get(window.began_at_ms)
        totals[window.began_at_ms] = (
            replace(window, node_id=node_id, process="")
            if before is None
            else replace(
                before,
                errors=before.errors + window.errors,
                latency_counts=added(before.latency_counts, window.latency_counts),
            )
        )
    return dict(sorted(totals.items()))


def added(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """Return the counts of both together."""
    return tuple(a + b for a, b in zip(one, other, strict=True))
