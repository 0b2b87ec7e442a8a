"""Load reports as messages and back."""

from __future__ import annotations

from nextgen.client.wire.broker_load import load_from_proto, load_to_proto
from nextgen.kernel.governance.broker_load import BrokerLoad, Rates, UnitLoad

LOAD = BrokerLoad(
    units=3,
    rates=Rates(1.0, 2.0, 3.0, 4.0),
    busiest=tuple(
        UnitLoad(f"persistent://a/b/t-{at}", "", Rates(bytes_in=1.0), is_bound=at == 1)
        for at in range(3)
    ),
    measured_at_ms=7,
)


def test_a_report_comes_back_as_it_was() -> None:
    assert load_from_proto(load_to_proto(LOAD)) == LOAD


def test_units_that_rules_bind_are_told_by_their_places() -> None:
    report = load_to_proto(LOAD)
    assert list(report.bound) == [1]

    report.bound.append(50)

    assert load_from_proto(report) == LOAD, "a place that nobody has means nothing"
