"""Loads of single topics: rates, the busiest, and topics that close."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from brokers.adapters.load_meter import memory_limit_bytes
from brokers.adapters.unit_meter import UnitMeter
from brokers.service.traffic import Traffic
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.limits.placement import BUSIEST_UNITS_MAX


def topic(
    number: int = 0, *, producers: int = 1, consumers: int = 2, is_bound: bool = False
) -> Any:
    """An open topic as far as it is measured."""
    return SimpleNamespace(
        unit=SimpleNamespace(name=f"persistent://acme/orders/t-{number}", unit=""),
        traffic=Traffic(),
        producers=range(producers),
        consumers=consumers,
        policy=SimpleNamespace(is_bound=is_bound),
    )


def test_rates_are_of_the_time_between_two_looks() -> None:
    meter, one = UnitMeter(), topic()
    assert meter.measure([one], now_ms=0, wall_ms=7) == ()

    one.traffic.count_in(10, 1_000)
    one.traffic.count_out(5, 20, 4_000)
    (load,) = meter.measure([one], now_ms=2_000, wall_ms=8)

    assert load.rates == Rates(5.0, 10.0, 500.0, 2_000.0)
    assert (load.name, load.producers, load.consumers) == (one.unit.name, 1, 2)
    assert load.measured_at_ms == 8
    assert meter.measure([one], now_ms=4_000, wall_ms=9) == (), "nothing more went through"


@pytest.mark.parametrize("more", [0, 1])
def test_the_busiest_units_are_reported_by_bytes_and_no_others(more: int) -> None:
    topics = [topic(number) for number in range(BUSIEST_UNITS_MAX + more)]
    meter = UnitMeter()
    meter.measure(topics, now_ms=0, wall_ms=0)
    for number, each in enumerate(topics):
        each.traffic.count_in(1, 1 + number)

    loads = meter.measure(topics, now_ms=1_000, wall_ms=0)

    assert [load.name for load in loads] == [each.unit.name for each in reversed(topics)][
        :BUSIEST_UNITS_MAX
    ]


def test_clients_of_topics_that_closed_are_not_counted() -> None:
    meter = UnitMeter()
    meter.measure([topic(1), topic(2, producers=3)], now_ms=0, wall_ms=0)
    assert (meter.producers, meter.consumers) == (4, 4)

    meter.measure([topic(1)], now_ms=1_000, wall_ms=0)

    assert (meter.producers, meter.consumers) == (1, 2)


def test_a_topic_that_was_closed_and_opened_again_counts_from_nothing() -> None:
    meter, before = UnitMeter(), topic()
    before.traffic.count_in(100, 100)
    meter.measure([before], now_ms=0, wall_ms=0)
    again = topic()
    again.traffic.count_in(500, 500)

    assert meter.measure([again], now_ms=1_000, wall_ms=0) == ()


def test_of_many_topics_each_measurement_looks_at_the_next() -> None:
    topics = [topic(number) for number in range(5)]
    meter = UnitMeter(looked_at_max=2)
    found = set()
    for turn in range(6):
        for each in topics:
            each.traffic.count_in(1, 100)
        found |= {load.name for load in meter.measure(topics, now_ms=1_000 * turn, wall_ms=0)}

    assert found == {each.unit.name for each in topics}
    assert meter.producers == 5


def test_the_memory_limit_is_the_containers_if_it_has_one(tmp_path: Any) -> None:
    limit = tmp_path / "memory.max"
    machine = memory_limit_bytes(limit)
    assert machine > 0

    limit.write_text("1048576\n")
    assert memory_limit_bytes(limit) == 1_048_576
    limit.write_text("max\n")
    assert memory_limit_bytes(limit) == machine


def test_units_that_placement_rules_bind_are_reported_as_such() -> None:
    meter, topics = UnitMeter(), [topic(1), topic(2, is_bound=True)]
    meter.measure(topics, now_ms=0, wall_ms=0)
    for each in topics:
        each.traffic.count_in(1, 100)

    loads = meter.measure(topics, now_ms=1_000, wall_ms=0)

    assert {load.name: load.is_bound for load in loads} == {
        topics[0].unit.name: False,
        topics[1].unit.name: True,
    }
