"""Judges the moves that nobody asked for: where units go, and how soon again.

BalancedUnitsRest  a unit that was moved to even brokers out is not moved so again in its grace
BalancedMovesHelp  it is moved by the plan: from a broker with more of its share to one with less
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nextgen.kernel.governance.balance_settings import BalanceSettings
from shards.domain.assignment import ASKED_BY_BALANCE, REASON_REBALANCED

SHORT_BALANCE = BalanceSettings(interval_seconds=5, grace_seconds=15, moves_per_minute_max=120)
"""The settings of a simulated cluster, so that a run sees rounds and graces end."""

SHORT_REPORT_MS_MAX = 5_000
"""Milliseconds after which brokers report an unchanged load: a round counts only new reports."""

_CLOCK_STEP_MS = 50
"""A move is decided a moment before it is answered, which is when its grace begins in a term."""


@dataclass(frozen=True, slots=True)
class _Moved:
    decided_at_ms: int
    seen_at: float
    wall_offsets_ms: Mapping[str, int]


@dataclass(slots=True)
class Balanced:
    """The moves so far. ``now`` is the true time in seconds."""

    violate: Callable[[str], None]
    now: Callable[[], float]
    wall_offsets_ms: Mapping[str, int]
    count: int = 0
    """Moves that nobody asked for."""
    _moved: dict[tuple[str, str], _Moved] = field(default_factory=dict)

    def assigned(self, event: Any, decided_at_ms: int) -> None:
        """Judge a ``TopicAssigned``, decided at this true time by its leader's clock."""
        if event.reason != REASON_REBALANCED:
            return
        key = (event.topic_id, event.unit)
        if event.decision.asked_by == ASKED_BY_BALANCE:
            self.count += 1
            self._judge(event, self._moved.get(key), decided_at_ms)
        offsets = dict(self.wall_offsets_ms)
        self._moved[key] = _Moved(decided_at_ms, self.now(), offsets)

    def _judge(self, event: Any, before: _Moved | None, decided_at_ms: int) -> None:
        seen = event.decision.balance
        if seen.from_permille <= seen.to_permille:
            self.violate(f"{event.name} was moved to a broker that is no better off: {seen}")
        if before is None or before.wall_offsets_ms != self.wall_offsets_ms:
            # A new leader compares times of two clocks; one of them was set in between.
            return
        grace_ms = 1_000 * SHORT_BALANCE.grace_seconds - _CLOCK_STEP_MS
        decided_ms = decided_at_ms - before.decided_at_ms
        seen_ms = 1_000 * (self.now() - before.seen_at)
        if 0 <= decided_ms < grace_ms and seen_ms < grace_ms:
            self.violate(f"{event.name} was moved for balance again after {decided_ms} ms")
