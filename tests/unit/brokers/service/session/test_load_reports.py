"""Load is reported on change, once a minute, and to each new manager."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from brokers.service.session.load_reports import LoadReports
from nextgen.kernel.governance.broker_load import BrokerLoad, Rates
from nextgen.kernel.limits.placement import LOAD_REPORT_MS_MAX, LOAD_REPORT_MS_MIN


class Measured:
    """A meter and a clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.load = BrokerLoad()
        self.measurements = 0
        self.reports = LoadReports(self._measure, lambda: self.now_ms)

    def _measure(self) -> BrokerLoad:
        self.measurements += 1
        return self.load

    def busy(self, messages_in: float) -> None:
        self.load = BrokerLoad(rates=Rates(messages_in=messages_in))


def test_the_first_load_is_reported_at_once_with_the_units() -> None:
    it = Measured()

    assert it.reports.due(7) == BrokerLoad(units=7)
    assert it.reports.due(7) is None


def test_a_change_is_reported_after_five_seconds_and_not_measured_before() -> None:
    it = Measured()
    it.reports.due(0)
    it.busy(1_000.0)

    it.now_ms += LOAD_REPORT_MS_MIN - 1
    assert it.reports.due(0) is None
    assert it.measurements == 1
    it.now_ms += 1
    assert it.reports.due(0) == it.load


def test_an_unchanged_value_is_reported_once_a_minute() -> None:
    it = Measured()
    told_at_ms = [it.now_ms] if it.reports.due(0) else []

    for _ in range(2 * LOAD_REPORT_MS_MAX // 750):
        it.now_ms += 750
        if it.reports.due(0) is not None:
            told_at_ms.append(it.now_ms)

    gaps = [after - before for before, after in pairwise(told_at_ms)]
    assert gaps, "nothing was told a second time"
    assert all(LOAD_REPORT_MS_MAX <= gap <= LOAD_REPORT_MS_MAX + LOAD_REPORT_MS_MIN for gap in gaps)


def test_small_changes_add_up_until_they_are_reported() -> None:
    it = Measured()
    it.busy(1_000.0)
    it.reports.due(0)
    told = []

    for step in range(1, 5):
        it.now_ms += LOAD_REPORT_MS_MIN
        it.busy(1_000.0 + 50 * step)
        told.append(it.reports.due(0) is not None)

    assert told == [False, False, True, False]


def test_another_manager_gets_the_last_measurement_at_once() -> None:
    it = Measured()
    it.busy(1_000.0)
    it.reports.due(3)
    it.busy(5_000.0)
    it.now_ms += 10

    it.reports.start_over()

    assert it.reports.due(4) == replace(BrokerLoad(rates=Rates(messages_in=1_000.0)), units=4)
    assert it.measurements == 1
