"""What a layout costs and how it carries its traffic, summed up over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nextgen.kernel.governance.auto_scale_policy import AutoScalePolicy
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.scalable.auto_scale import ActionKind
from nextgen.kernel.scalable.segment_load import in_order
from pipelines.durations import DAY_MS, HOUR_MS

LEAP_MS = 366 * DAY_MS
"""Time without an event of a topic that is not counted: a leader's clock leapt."""


@dataclass(slots=True)
class HourSums:
    """Sums over all topics within one hour of one scenario, in milliseconds and operations."""

    segment_ms: int = 0
    hot_ms: int = 0
    short_ms: int = 0
    operations: int = 0


Hours = defaultdict[tuple[str, int], HourSums]
"""By scenario and the hour's beginning."""


def no_hours() -> Hours:
    return defaultdict(HourSums)


@dataclass(frozen=True, slots=True)
class Condition:
    """A topic's condition from some moment on."""

    segments: int = 0
    is_hot: bool = False
    is_own_hot: bool = False
    is_short: bool = False


@dataclass(slots=True)
class Meter:
    """Sums up one topic's life in one scenario. ``set`` with ascending times, ``close`` last."""

    scenario: str
    hours: Hours
    began_ms: int
    condition: Condition = Condition()
    segments_first: int = 0
    segments_max: int = 0
    segment_ms: int = 0
    hot_ms: int = 0
    own_hot_ms: int = 0
    short_ms: int = 0
    operations: dict[ActionKind, int] = field(default_factory=lambda: dict.fromkeys(ActionKind, 0))
    _since_ms: int = 0

    def set(self, now_ms: int, condition: Condition) -> None:
        """Take the condition from ``now_ms`` on."""
        if condition == self.condition:
            return
        self._add_up(now_ms)
        self.condition = condition
        self.segments_first = self.segments_first or condition.segments
        self.segments_max = max(self.segments_max, condition.segments)

    def count(self, now_ms: int, kind: ActionKind) -> None:
        """Count an operation that was begun."""
        self.operations[kind] += 1
        self.hours[self.scenario, now_ms // HOUR_MS * HOUR_MS].operations += 1

    def close(self, now_ms: int) -> Mapping[str, int]:
        """End the life; return its sums, by the columns of the table of topics."""
        self._add_up(now_ms)
        return {
            "lived_ms": max(0, self._since_ms - self.began_ms),
            "splits": self.operations[ActionKind.SPLIT],
            "merges": self.operations[ActionKind.MERGE],
            "rebuckets": self.operations[ActionKind.REBUCKET],
            "segments_first": self.segments_first,
            "segments_last": self.condition.segments,
            "segments_max": self.segments_max,
            "segment_ms": self.segment_ms,
            "hot_ms": self.hot_ms,
            "own_hot_ms": self.own_hot_ms,
            "short_ms": self.short_ms,
        }

    def _add_up(self, now_ms: int) -> None:
        now, at_ms = self.condition, self._since_ms or self.began_ms
        if not at_ms < now_ms <= at_ms + LEAP_MS:
            return  # A leader's clock that is behind its predecessor's, or leapt.
        self._since_ms = now_ms
        passed_ms = now_ms - at_ms
        self.segment_ms += now.segments * passed_ms
        self.hot_ms += now.is_hot * passed_ms
        self.own_hot_ms += now.is_own_hot * passed_ms
        self.short_ms += now.is_short * passed_ms
        while at_ms < now_ms:
            hour_ms = at_ms // HOUR_MS * HOUR_MS
            until_ms = min(now_ms, hour_ms + HOUR_MS)
            sums = self.hours[self.scenario, hour_ms]
            sums.segment_ms += now.segments * (until_ms - at_ms)
            sums.hot_ms += now.is_hot * (until_ms - at_ms)
            sums.short_ms += now.is_short * (until_ms - at_ms)
            at_ms = until_ms


def is_hot(all_rates: Iterable[Rates], policy: AutoScalePolicy | None) -> bool:
    """Return whether a segment has a rate above its threshold for a split."""
    if policy is None:
        return False
    limits = policy.split_thresholds
    for rates in all_rates:
        one, two, three, four = in_order(rates)
        if one > limits[0] or two > limits[1] or three > limits[2] or four > limits[3]:
            return True
    return False
