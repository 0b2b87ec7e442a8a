"""What brokers carry, smoothed over their load reports: the input of every plan of a balance.

    reports ──take──▶ refused and counted, or kept for their round ──▶ folded: ``BrokerMeasured``

A report belongs to the round in which it was measured, whenever it arrives. So nodes that get the
same reports a little later than others plan from the same loads.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from nextgen.kernel.limits.placement import (
    BALANCE_REPORT_AGE_MS_MAX,
    BALANCE_REPORT_AHEAD_MS_MAX,
    BUSIEST_UNITS_MAX,
)
from shards.domain.placement.rebalance import UNIT_WEIGHT, Move

RATES_PER_BROKER_MAX = 4 * BUSIEST_UNITS_MAX
"""Smoothed rates kept of a broker: of the last report's units and of earlier, fading ones."""

STEADY_INTERVALS = 7
"""Intervals by which a rate is smoothed: a report after one interval weighs an eighth."""

LEAP_INTERVALS = 1
"""The same for a report more than half away from what is known, which is no noise: it weighs
half."""

NOT_A_NUMBER = "not_a_number"
NEGATIVE = "negative"
STALE = "stale"
FUTURE = "future"


@dataclass(frozen=True, slots=True)
class Report:
    """One load report. Rates are in bytes a second, with a surcharge for each message."""

    broker_id: str
    session_id: str
    measured_at_ms: int
    """Unix time of the broker."""

    units: int
    load: float
    """The whole broker's traffic."""

    named: Mapping[str, float] = field(default_factory=dict)
    """The traffic of its busiest units, by canonical name."""

    busy_permille: int = 0
    """How full the fullest resource of its machine is."""

    bound: Collection[str] = ()
    """Those of ``named`` that placement rules bind: they are not moved."""


@dataclass(slots=True)
class BrokerMeasured:
    """What one broker session carries. Moves that are planned are booked before they are made."""

    session_id: str
    first_at_ms: int
    """When its first report was measured."""

    measured_at_ms: int
    units: int
    load: int
    rates: dict[str, int]
    """By unit, of those that reports named; the ones of the last report are ``named``."""

    named: set[str]
    busy_permille: int
    bound: frozenset[str] = frozenset()
    """Names that rules bind, by the last report."""

    left: dict[str, int] = field(default_factory=dict)
    come: dict[str, int] = field(default_factory=dict)
    """Rates of named units that are booked as moved from and to here, until the next report."""

    @property
    def unnamed_units(self) -> int:
        return max(0, self.units - len(self.named))

    @property
    def unnamed_rate(self) -> int:
        """The even part that each unnamed unit has of the traffic that is not the named units'."""
        rest = self.load - sum(self.rates[name] for name in self.named)
        return max(0, rest) // max(1, self.unnamed_units)

    def settle(self, reported: Mapping[str, int]) -> None:
        """Count units at their old broker again whose planned move a later report does not show.

        A broker looks at its own report only, so that the order of reports does not matter.
        """
        for name, rate in self.left.items():
            if name in reported:
                self.load += rate
                self.rates[name] = rate
        least = min(reported.values()) if len(reported) >= BUSIEST_UNITS_MAX else 0
        for name, rate in self.come.items():
            if name not in reported and rate > least:
                self.load = max(0, self.load - rate)
                self.rates.pop(name, None)
        self.left, self.come = {}, {}


class MeasuredLoads:
    """The smoothed loads of all brokers. Soft: a node that starts has them after some reports."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        """Reports that were ignored, by reason."""

        self._brokers: dict[str, BrokerMeasured] = {}
        self._seen: dict[str, tuple[str, int]] = {}
        """By broker: session and time of the last report, so that each is counted once."""

        self._early: dict[str, Report] = {}
        """By broker: the last report of a round that is not open yet."""

        self._held_until_ms: dict[str, int] = {}
        """By broker: reports measured before that do not show yet what is booked."""

        self._until_ms = 0
        self._interval_ms = 1

    def __repr__(self) -> str:
        return f"<MeasuredLoads brokers={len(self._brokers)}>"

    def of(self, broker_id: str, session_id: str) -> BrokerMeasured | None:
        """Return what a session carries by its folded reports, None without one."""
        found = self._brokers.get(broker_id)
        return found if found is not None and found.session_id == session_id else None

    def measured_at_ms(self, broker_id: str) -> int:
        """Return when the last folded report of a broker was measured, 0 without one."""
        found = self._brokers.get(broker_id)
        return 0 if found is None else found.measured_at_ms

    def is_held(self, broker_id: str) -> bool:
        """Return whether its last folded report is older than the end of moves that are booked."""
        return self._brokers[broker_id].measured_at_ms < self._held_until_ms.get(broker_id, 0)

    def named_twice(self) -> set[str]:
        """Return the units that two brokers name: they moved just now, by another hand."""
        named = Counter(name for broker in self._brokers.values() for name in broker.named)
        return {name for name, brokers in named.items() if brokers > 1}

    def take(self, report: Report, now_ms: int) -> None:
        """Take in a report. What cannot be, or is too old or too new, is ignored and counted."""
        seen = (report.session_id, report.measured_at_ms)
        if self._seen.get(report.broker_id) == seen:
            return
        why = self._why_refused(report, now_ms)
        self._seen[report.broker_id] = seen
        if why:
            self.refused[why] += 1
        elif report.measured_at_ms > self._until_ms:
            self._early[report.broker_id] = report
        else:
            self._fold(report)

    def open_round(self, until_ms: int, interval_ms: int) -> None:
        """Fold what was measured until ``until_ms``, and from now on what comes of that time."""
        self._until_ms, self._interval_ms = until_ms, interval_ms
        for report in list(self._early.values()):
            if report.measured_at_ms <= until_ms:
                del self._early[report.broker_id]
                self._fold(report)

    def keep(self, broker_ids: Collection[str]) -> None:
        """Forget all other brokers."""
        for kept in (self._brokers, self._seen, self._early, self._held_until_ms):
            for broker_id in kept.keys() - broker_ids:
                del kept[broker_id]

    # Moves ------------------------------------------------------------------------------------

    def book(self, move: Move, until_ms: int) -> None:
        """Count the units of a move as moved.

        Both brokers are held until a report measured behind ``until_ms``. If those show that a
        named unit stayed, its load is given back: a rule forbade the move, or it failed.
        """
        giver, taker = self._brokers[move.from_broker_id], self._brokers[move.to_broker_id]
        rate = move.count * (move.weight - UNIT_WEIGHT)
        if move.name:
            giver.rates.pop(move.name)
            giver.named.discard(move.name)
            giver.left[move.name] = taker.come[move.name] = taker.rates[move.name] = rate
            taker.named.add(move.name)
        giver.load, taker.load = max(0, giver.load - rate), taker.load + rate
        giver.units, taker.units = giver.units - move.count, taker.units + move.count
        for broker_id in (move.from_broker_id, move.to_broker_id):
            self._held_until_ms[broker_id] = until_ms

    # Reports ----------------------------------------------------------------------------------

    def _why_refused(self, report: Report, now_ms: int) -> str:
        numbers = (report.units, report.load, report.busy_permille, *report.named.values())
        if not all(map(math.isfinite, numbers)):
            return NOT_A_NUMBER
        if min(numbers) < 0:
            return NEGATIVE
        if report.measured_at_ms > now_ms + BALANCE_REPORT_AHEAD_MS_MAX:
            return FUTURE
        session_id, measured_at_ms = self._seen.get(report.broker_id, ("", 0))
        is_older = session_id == report.session_id and report.measured_at_ms < measured_at_ms
        if is_older or report.measured_at_ms < now_ms - BALANCE_REPORT_AGE_MS_MAX:
            return STALE
        return ""

    def _fold(self, report: Report) -> None:
        if report.measured_at_ms < self._held_until_ms.get(report.broker_id, 0):
            return
        reported = {name: int(rate) for name, rate in report.named.items()}
        known = self.of(report.broker_id, report.session_id)
        if known is None:
            self._brokers[report.broker_id] = BrokerMeasured(
                report.session_id,
                report.measured_at_ms,
                report.measured_at_ms,
                report.units,
                int(report.load),
                reported,
                set(reported),
                report.busy_permille,
                frozenset(report.bound),
            )
            return
        known.settle(reported)
        rates = {
            name: self._smoothed(known, known.rates.get(name, rate), rate, report.measured_at_ms)
            for name, rate in (dict.fromkeys(known.rates, 0) | reported).items()
        }
        busiest = heapq.nlargest(RATES_PER_BROKER_MAX, rates.items(), key=itemgetter(1))
        known.rates = {name: rate for name, rate in busiest if rate or name in reported}
        known.named = set(reported) & known.rates.keys()
        known.load = self._smoothed(known, known.load, int(report.load), report.measured_at_ms)
        known.units, known.busy_permille = report.units, report.busy_permille
        known.bound, known.measured_at_ms = frozenset(report.bound), report.measured_at_ms

    def _smoothed(self, known: BrokerMeasured, rate: int, reported: int, at_ms: int) -> int:
        return smoothed(
            rate,
            reported,
            passed_ms=max(1, at_ms - known.measured_at_ms),
            known_ms=known.measured_at_ms - known.first_at_ms + self._interval_ms,
            interval_ms=self._interval_ms,
        )


def smoothed(known: int, reported: int, *, passed_ms: int, known_ms: int, interval_ms: int) -> int:
    """Return a smoothed rate after a report. It reaches the rate of unchanging reports.

    ``passed_ms`` is the time between the last two reports: many reports of a short time count no
    more than one of a long time. ``known_ms`` is the time over which ``known`` was reported: a few
    reports are averaged.
    """
    if reported == known:
        return known
    is_leap = 2 * abs(reported - known) > known
    behind_ms = interval_ms * (LEAP_INTERVALS if is_leap else STEADY_INTERVALS)
    step = abs(reported - known) * passed_ms // (passed_ms + min(behind_ms, known_ms))
    # Rounding down would stop short of the report for ever.
    return known + max(1, step) * (1 if reported > known else -1)
