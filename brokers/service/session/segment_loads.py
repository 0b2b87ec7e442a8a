"""Measures the segments of scalable topics and reports the rates that moved.

    counters ─▶ rates of the last interval ─▶ moved since what is on record ─▶ the manager
                          what the shard has on record ◀─ recorded, or not ◀────╯

Of a segment that has just come here nothing is known, so its first rates are reported; the answer
says what the shard has on record, and from then on only what moved by enough is reported. A report
without an answer is repeated by the next measurement. A segment that is not open has no traffic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from brokers.domain.holding import Assignment, Holding, UnitKey
from brokers.ports.session import SegmentTraffic
from brokers.service.traffic import Traffic, counted, rates_between
from nextgen.kernel.governance.auto_scale_policy import (
    AUTO_SCALE_POLICY,
    AutoScalePolicy,
    InvalidAutoScale,
    resolve,
)
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.governance.service_settings import ServiceSettings
from nextgen.kernel.limits.scalable import SEGMENT_LOADS_PER_REPORT_MAX
from nextgen.kernel.routing.names import Domain
from nextgen.kernel.scalable.segment_load import is_material
from nextgen.tasks.interval import ChangingInterval

_UNITS_PER_STEP = 500
"""Units that are looked at before the event loop runs other work: a few milliseconds."""

_SEGMENT = f"{Domain.SEGMENT}://"

_logger = structlog.get_logger(__name__)


class Measurable(Protocol):
    """An open topic, as far as it is measured."""

    @property
    def traffic(self) -> Traffic: ...


@dataclass(slots=True)
class _Measured:
    """A held segment: its counters at the last measurement, and what its shard has on record."""

    epoch: int
    traffic: Traffic | None = None
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)
    at_ms: int = 0
    on_record: Rates | None = None


class SegmentLoads:
    """The segments of one broker. ``topic`` returns the open topic of a canonical name.

    ``settings`` has the interval, and the policy where neither a namespace nor a topic has one.
    ``clock`` is in milliseconds and never goes back.
    """

    def __init__(
        self,
        holding: Callable[[], Holding],
        topic: Callable[[str], Measurable | None],
        report: Callable[[Sequence[SegmentTraffic]], None],
        settings: Callable[[], ServiceSettings],
        clock: Callable[[], int],
    ) -> None:
        self._holding = holding
        self._topic = topic
        self._report = report
        self._settings = settings
        self._interval = ChangingInterval(lambda: settings().load_reporting.interval_ms / 1_000)
        self._clock = clock
        self._measured: dict[UnitKey, _Measured] = {}
        self._last = ""
        """The name of the last segment that had room in a report: the others come first then."""

    def __repr__(self) -> str:
        return f"<SegmentLoads segments={len(self._measured)}>"

    def settings_changed(self) -> None:
        """Read the interval anew; other settings are read at each measurement."""
        self._interval.changed()

    async def run(self) -> None:
        """Measure at the interval of the settings until cancelled."""
        while True:
            await self._interval.wait()
            try:
                await self.measure()
            except Exception:
                _logger.exception("measuring segments failed")

    async def measure(self) -> None:
        """Measure all held segments once, and report those that moved."""
        holding, settings = self._holding(), self._settings()
        held = [each for each in holding.assignments.values() if each.name.startswith(_SEGMENT)]
        present: dict[UnitKey, _Measured] = {}
        moved: list[SegmentTraffic] = []
        for number, unit in enumerate(held, start=1):
            known = self._measured.get(unit.key)
            if known is None or known.epoch != unit.epoch:
                known = _Measured(unit.epoch)
            present[unit.key] = known
            rates = self._rates(unit, known)
            policy = _policy(settings.auto_scale, holding, unit)
            change = settings.load_reporting.rate_change
            if rates is not None and is_material(known.on_record, rates, policy, change):
                moved.append(
                    SegmentTraffic(unit.topic.topic_id, unit.unit, unit.name, unit.epoch, rates)
                )
            if number % _UNITS_PER_STEP == 0:
                await asyncio.sleep(0)
        # A segment that is not held any more is forgotten with what was known of it.
        self._measured = present
        if moved:
            self._report(self._page(moved))

    def recorded(self, segments: Sequence[SegmentTraffic]) -> None:
        """Note what the shards of reported segments have on record."""
        for each in segments:
            known = self._measured.get((each.topic_id, each.unit))
            if known is not None and known.epoch == each.epoch:
                known.on_record = each.rates

    def _rates(self, unit: Assignment, known: _Measured) -> Rates | None:
        """Return the rates since the last measurement, None if there was none."""
        topic, now_ms = self._topic(unit.name), self._clock()
        if topic is None:
            known.traffic = None
            return Rates()
        traffic, counts = topic.traffic, counted(topic.traffic)
        before, passed_ms = known.counts, now_ms - known.at_ms
        # One that is opened again counts from zero.
        is_first = known.traffic is not traffic
        known.traffic, known.counts, known.at_ms = traffic, counts, now_ms
        if is_first or passed_ms <= 0:
            return None
        return rates_between(before, counts, passed_ms)

    def _page(self, moved: list[SegmentTraffic]) -> list[SegmentTraffic]:
        if len(moved) <= SEGMENT_LOADS_PER_REPORT_MAX:
            return moved
        moved.sort(key=lambda each: (each.name <= self._last, each.name))
        page = moved[:SEGMENT_LOADS_PER_REPORT_MAX]
        self._last = page[-1].name
        return page


def _policy(service: AutoScalePolicy, holding: Holding, unit: Assignment) -> AutoScalePolicy:
    try:
        return resolve(service, *holding.overrides(unit, AUTO_SCALE_POLICY))
    except InvalidAutoScale:
        return service
