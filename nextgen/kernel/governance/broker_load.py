"""The load of brokers: its values, their check, and which changes are worth reporting.

Brokers measure load; their broker managers and the cluster manager check it. It breaks ties, and
orders evacuations and moves. It never decides anything that must be exact: whether a broker may
have one more unit depends on capacity alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from nextgen.kernel.limits.cluster import STORED_INTEGER_MAX
from nextgen.kernel.limits.placement import (
    BUSIEST_UNITS_MAX,
    LOAD_BYTES_MAX,
    LOAD_CORES_MAX,
    LOAD_COUNT_MAX,
    LOAD_NAME_BYTES_MAX,
    LOAD_RATE_MAX,
)

_TENTH = 0.1
_PERMILLE_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of messages and payload bytes, per second."""

    messages_in: float = 0.0
    messages_out: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0

    @property
    def bytes_both_ways(self) -> float:
        return self.bytes_in + self.bytes_out

    def named(self) -> Iterable[tuple[str, float]]:
        """Yield each rate with the name that messages use."""
        yield "messages in per second", self.messages_in
        yield "messages out per second", self.messages_out
        yield "bytes in per second", self.bytes_in
        yield "bytes out per second", self.bytes_out


@dataclass(frozen=True, slots=True)
class UnitLoad:
    """The load of one topic or partition. ``name`` is canonical, partition included."""

    name: str
    unit: str
    rates: Rates
    producers: int = 0
    consumers: int = 0
    measured_at_ms: int = 0
    is_bound: bool = False
    """Whether placement rules say which brokers may have it."""


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The load of one broker. 0 in a limit or in ``cores`` means unknown."""

    units: int = 0
    """Units assigned."""
    open_topics: int = 0
    """Number of units that clients use."""
    connections: int = 0
    producers: int = 0
    consumers: int = 0
    cpu_fraction: float = 0.0
    """CPU use in cores: 1.0 is one busy core."""
    cores: int = 0
    """Number of cores that the process can use."""
    memory_bytes: int = 0
    memory_limit_bytes: int = 0
    rates: Rates = field(default_factory=Rates)
    busiest: tuple[UnitLoad, ...] = ()
    """By bytes in and out, the busiest first; units without traffic are left out."""
    measured_at_ms: int = 0
    """Unix time of the broker; grows from report to report of a session."""


def refusal(load: BrokerLoad, capacity_units: int) -> str:
    """Return why ``load`` is invalid, with the field's name; "" if it is valid."""
    if load.units > capacity_units:
        return f"{load.units} units are more than the capacity of {capacity_units}"
    if len(load.busiest) > BUSIEST_UNITS_MAX:
        return f"the load of {len(load.busiest)} units is given, at most {BUSIEST_UNITS_MAX} may be"
    for name, count in _counts(load):
        if not 0 <= count <= LOAD_COUNT_MAX:
            return f"{name} of {count} cannot be"
    return (
        _refused_number("CPU", load.cpu_fraction, LOAD_CORES_MAX)
        or _refused_number("cores", load.cores, LOAD_CORES_MAX)
        or _refused_number("memory bytes", load.memory_bytes, LOAD_BYTES_MAX)
        or _refused_number("memory limit", load.memory_limit_bytes, LOAD_BYTES_MAX)
        or _refused_number("time of measurement", load.measured_at_ms, STORED_INTEGER_MAX)
        or _refused_rates(load.rates, "")
        or next(filter(None, map(_refused_unit, load.busiest)), "")
    )


def has_changed(before: BrokerLoad, after: BrokerLoad) -> bool:
    """Return whether a value changed by more than a tenth, and by more than noise."""
    return any(
        abs(now - then) > max(noise, _TENTH * max(now, then))
        for (then, noise), (now, _) in zip(_material(before), _material(after), strict=True)
    )


def busiest_permille(
    *, cpu_fraction: float, cores: int, memory_bytes: int, memory_limit_bytes: int
) -> int:
    """Return the use of the busier of CPU and memory, 0 to 1,000. An unknown use counts as 0."""
    cpu = cpu_fraction / cores if cores else 0.0
    memory = memory_bytes / memory_limit_bytes if memory_limit_bytes else 0.0
    return min(_PERMILLE_MAX, round(_PERMILLE_MAX * max(cpu, memory)))


def _counts(load: BrokerLoad) -> Iterable[tuple[str, int]]:
    yield "units", load.units
    yield "open topics", load.open_topics
    yield "connections", load.connections
    yield "producers", load.producers
    yield "consumers", load.consumers


def _material(load: BrokerLoad) -> Iterable[tuple[float, float]]:
    """Yield the compared values, each with the largest change that is only noise."""
    yield load.cpu_fraction, 0.05
    yield load.memory_bytes, 32 * 1024 * 1024
    yield load.units, 10
    yield load.open_topics, 10
    yield load.connections, 10
    yield load.producers, 10
    yield load.consumers, 10
    yield load.rates.messages_in, 10
    yield load.rates.messages_out, 10
    yield load.rates.bytes_in, 10_000
    yield load.rates.bytes_out, 10_000


def _refused_unit(unit: UnitLoad) -> str:
    if not 0 < len(unit.name.encode()) <= LOAD_NAME_BYTES_MAX:
        return f"the load of a unit whose name has {len(unit.name.encode())} bytes cannot be"
    if len(unit.unit.encode()) > LOAD_NAME_BYTES_MAX:
        return f"the load of a unit of {len(unit.unit.encode())} bytes of {unit.name} cannot be"
    for name, count in (("producers", unit.producers), ("consumers", unit.consumers)):
        if not 0 <= count <= LOAD_COUNT_MAX:
            return f"{name} of {count} of {unit.name} cannot be"
    whose = f" of {unit.name}"
    return _refused_number(
        f"time of measurement{whose}", unit.measured_at_ms, STORED_INTEGER_MAX
    ) or _refused_rates(unit.rates, whose)


def _refused_rates(rates: Rates, whose: str) -> str:
    for name, rate in rates.named():
        if refused := _refused_number(f"{name}{whose}", rate, LOAD_RATE_MAX):
            return refused
    return ""


def _refused_number(name: str, number: float, number_max: float) -> str:
    if math.isfinite(number) and 0 <= number <= number_max:
        return ""
    return f"{name} of {number} cannot be"
