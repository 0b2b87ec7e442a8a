"""What a broker may say that it carries, and what of it is worth telling."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.governance.broker_load import (
    BrokerLoad,
    Rates,
    UnitLoad,
    busiest_permille,
    has_changed,
    refusal,
)
from nextgen.kernel.limits.placement import (
    BUSIEST_UNITS_MAX,
    LOAD_BYTES_MAX,
    LOAD_CORES_MAX,
    LOAD_COUNT_MAX,
    LOAD_NAME_BYTES_MAX,
    LOAD_RATE_MAX,
)

UNIT = UnitLoad("persistent://acme/orders/paid", "", Rates(1.0, 2.0, 3.0, 4.0), 1, 2)
LOAD = BrokerLoad(
    units=10,
    open_topics=5,
    connections=3,
    cpu_fraction=0.5,
    cores=2,
    memory_bytes=100,
    memory_limit_bytes=1_000,
    rates=Rates(100.0, 200.0, 1e6, 2e6),
    busiest=(UNIT,),
)


def test_a_load_that_can_be_is_not_refused():
    assert refusal(LOAD, 10) == ""
    assert refusal(BrokerLoad(), 0) == ""


@pytest.mark.parametrize(
    ("load", "why"),
    [
        (replace(LOAD, units=11), "11 units are more than the capacity of 10"),
        (replace(LOAD, units=-1), "units of -1"),
        (replace(LOAD, cpu_fraction=-0.1), "CPU of -0.1"),
        (replace(LOAD, cpu_fraction=math.nan), "CPU of nan"),
        (replace(LOAD, cpu_fraction=math.inf), "CPU of inf"),
        (replace(LOAD, cpu_fraction=LOAD_CORES_MAX + 1), "CPU of 4097"),
        (replace(LOAD, cores=LOAD_CORES_MAX + 1), "cores of 4097"),
        (replace(LOAD, memory_bytes=LOAD_BYTES_MAX + 1), "memory bytes of"),
        (replace(LOAD, memory_limit_bytes=LOAD_BYTES_MAX + 1), "memory limit of"),
        (replace(LOAD, connections=LOAD_COUNT_MAX + 1), "connections of"),
        (replace(LOAD, open_topics=LOAD_COUNT_MAX + 1), "open topics of"),
        (replace(LOAD, producers=-1), "producers of -1"),
        (replace(LOAD, consumers=LOAD_COUNT_MAX + 1), "consumers of"),
        (replace(LOAD, measured_at_ms=2**63), "time of measurement of"),
        (replace(LOAD, rates=Rates(messages_in=-1.0)), "messages in per second of -1.0"),
        (replace(LOAD, rates=Rates(messages_out=math.nan)), "messages out per second of nan"),
        (replace(LOAD, rates=Rates(bytes_in=LOAD_RATE_MAX * 2)), "bytes in per second of"),
        (replace(LOAD, rates=Rates(bytes_out=math.inf)), "bytes out per second of inf"),
        (
            replace(LOAD, busiest=(replace(UNIT, rates=Rates(bytes_in=-1.0)),)),
            "bytes in per second of persistent://acme/orders/paid of -1.0",
        ),
        (replace(LOAD, busiest=(replace(UNIT, producers=-1),)), "producers of -1"),
        (replace(LOAD, busiest=(replace(UNIT, name=""),)), "a unit whose name has 0 bytes"),
        (
            replace(LOAD, busiest=(replace(UNIT, name="t" * (LOAD_NAME_BYTES_MAX + 1)),)),
            "a unit whose name has 1025 bytes",
        ),
        (
            replace(LOAD, busiest=(replace(UNIT, unit="p" * (LOAD_NAME_BYTES_MAX + 1)),)),
            "a unit of 1025 bytes of persistent://acme/orders/paid",
        ),
        (
            replace(LOAD, busiest=(replace(UNIT, measured_at_ms=2**63),)),
            "time of measurement of persistent://acme/orders/paid of 9223372036854775808",
        ),
        (replace(LOAD, busiest=(UNIT,) * (BUSIEST_UNITS_MAX + 1)), "the load of 51 units"),
    ],
)
def test_a_load_that_cannot_be_is_refused_and_named(load, why):
    assert why in refusal(load, 10)


@pytest.mark.parametrize(
    "load",
    [
        replace(LOAD, cpu_fraction=LOAD_CORES_MAX),
        replace(LOAD, memory_bytes=LOAD_BYTES_MAX),
        replace(LOAD, connections=LOAD_COUNT_MAX),
        replace(LOAD, rates=Rates(bytes_out=LOAD_RATE_MAX)),
        replace(LOAD, busiest=(replace(UNIT, name="t" * LOAD_NAME_BYTES_MAX),)),
        replace(LOAD, busiest=(replace(UNIT, unit="p" * LOAD_NAME_BYTES_MAX),)),
        replace(LOAD, measured_at_ms=2**63 - 1),
        replace(LOAD, busiest=(replace(UNIT, measured_at_ms=2**63 - 1),)),
        replace(LOAD, busiest=(UNIT,) * BUSIEST_UNITS_MAX),
    ],
)
def test_a_load_at_the_limit_can_be(load):
    assert refusal(load, 10) == ""


def test_a_change_of_a_tenth_is_none_and_a_larger_one_is():
    busy = replace(LOAD, rates=Rates(messages_in=1_000.0))

    assert not has_changed(busy, replace(busy, rates=Rates(messages_in=1_111.0)))
    assert has_changed(busy, replace(busy, rates=Rates(messages_in=1_112.0)))
    assert has_changed(busy, replace(busy, rates=Rates(messages_in=899.0)))


@pytest.mark.parametrize(
    ("noise", "change"),
    [
        (replace(LOAD, cpu_fraction=0.55), replace(LOAD, cpu_fraction=0.62)),
        (replace(LOAD, units=20), replace(LOAD, units=21)),
        (replace(LOAD, memory_bytes=32 << 20), replace(LOAD, memory_bytes=33 << 20)),
        (replace(LOAD, connections=13), replace(LOAD, connections=14)),
    ],
)
def test_little_of_little_is_noise(noise, change):
    assert not has_changed(LOAD, noise)
    assert has_changed(LOAD, change)


loads = st.builds(
    BrokerLoad,
    units=st.integers(0, 10**6),
    cpu_fraction=st.floats(0, 64),
    memory_bytes=st.integers(0, 2**40),
    rates=st.builds(Rates, *(st.floats(0, 1e9) for _ in range(4))),
)


@given(loads, loads)
def test_a_change_is_one_in_both_directions_and_none_to_itself(before, after):
    assert has_changed(before, after) is has_changed(after, before)
    assert not has_changed(before, before)


@pytest.mark.parametrize(
    ("cpu_fraction", "cores", "memory_bytes", "memory_limit_bytes", "permille"),
    [
        (0.5, 1, 1, 10, 500),
        (0.5, 2, 3, 10, 300),
        (0.0, 1, 0, 10, 0),
        (5.0, 1, 0, 10, 1_000),
        (0.5, 0, 5, 0, 0),
    ],
)
def test_the_busiest_resource_counts(
    cpu_fraction, cores, memory_bytes, memory_limit_bytes, permille
):
    found = busiest_permille(
        cpu_fraction=cpu_fraction,
        cores=cores,
        memory_bytes=memory_bytes,
        memory_limit_bytes=memory_limit_bytes,
    )

    assert found == permille
