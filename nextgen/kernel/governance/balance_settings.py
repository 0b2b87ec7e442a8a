"""How brokers are evened out by themselves: the settings, their names, their check.

Names are Pulsar's where Pulsar has the setting. Those that it has in minutes take fractions of one,
such as 0.25, as long as whole seconds come of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nextgen.kernel.limits.placement import (
    BALANCE_GRACE_SECONDS_MAX,
    BALANCE_INTERVAL_SECONDS_MAX,
    BALANCE_MOVES_PER_MINUTE_MAX,
    IDLE_UNLOAD_SECONDS_MAX,
)

LOAD_BALANCER_ENABLED: Final = "loadBalancerEnabled"
SHEDDING_ENABLED: Final = "loadBalancerSheddingEnabled"
START_PERMILLE: Final = "loadBalancerStartPermille"
GOAL_PERMILLE: Final = "loadBalancerGoalPermille"


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    """When units are moved so that brokers carry equal parts, and when idle ones are unloaded."""

    enabled: bool = True
    """Whether units are moved without a request. Idle units are unloaded either way."""
    interval_seconds: int = 60
    """Between two evaluations."""
    grace_seconds: int = 600
    """How long a unit that was moved is not moved again. Pulsar waits 30 minutes."""
    moves_per_minute_max: int = 600
    """Of the whole cluster."""
    start_permille: int = 100
    """A broker whose load differs from its share by more than this part begins a rebalance."""
    goal_permille: int = 50
    """A rebalance that has begun goes on until no broker differs by more than this part."""
    overloaded_percent: int = 85
    """A broker that uses more of its machine than this gets no units."""
    idle_unload_seconds: int = 600
    """A unit without clients leaves its broker after this time. 0: never."""


@dataclass(frozen=True, slots=True)
class BalanceName:
    """One setting: the field that it is, what multiplies its value, and the field's bounds."""

    field: str
    factor: int
    least: int
    most: int


_MINUTES: Final = 60

BALANCE_NUMBERS: Final[Mapping[str, BalanceName]] = {
    "loadBalancerSheddingIntervalMinutes": BalanceName(
        "interval_seconds", _MINUTES, 1, BALANCE_INTERVAL_SECONDS_MAX
    ),
    "loadBalancerSheddingGracePeriodMinutes": BalanceName(
        "grace_seconds", _MINUTES, 0, BALANCE_GRACE_SECONDS_MAX
    ),
    "loadBalancerMaxMovesPerMinute": BalanceName(
        "moves_per_minute_max", 1, 1, BALANCE_MOVES_PER_MINUTE_MAX
    ),
    START_PERMILLE: BalanceName("start_permille", 1, 1, 1_000),
    GOAL_PERMILLE: BalanceName("goal_permille", 1, 0, 1_000),
    "loadBalancerBrokerOverloadedThresholdPercentage": BalanceName("overloaded_percent", 1, 1, 100),
    "loadBalancerIdleUnloadSeconds": BalanceName(
        "idle_unload_seconds", 1, 0, IDLE_UNLOAD_SECONDS_MAX
    ),
}
"""Settings with a number, by name."""

BALANCE_SWITCHES: Final = (LOAD_BALANCER_ENABLED, SHEDDING_ENABLED)
"""Settings that are true or false. Units are moved if all of them are true."""

DEFAULT_BALANCE: Final = BalanceSettings()


def problem(values: Mapping[str, Any]) -> str:
    """Return why the settings may not have ``values``, by their names; "" if they may.

    A setting that is absent or None is not checked. The answer begins with a setting's name.
    """
    given = {name: value for name, value in values.items() if value is not None}
    for name in BALANCE_SWITCHES:
        if not isinstance(given.get(name, True), bool):
            return f"{name} is neither true nor false"
    for name, number in BALANCE_NUMBERS.items():
        refused = _refused(name, number, given[name]) if name in given else ""
        if refused:
            return refused
    start, goal = given.get(START_PERMILLE), given.get(GOAL_PERMILLE)
    if start is not None and goal is not None and goal > start:
        return f"{GOAL_PERMILLE} is {goal}, at most {START_PERMILLE} is allowed, which is {start}"
    return ""


def balance_of(values: Mapping[str, Any]) -> BalanceSettings:
    """Return the settings with ``values``, which have no ``problem``; the others are defaults."""
    found: dict[str, Any] = {"enabled": all(values.get(name, True) for name in BALANCE_SWITCHES)}
    for name, number in BALANCE_NUMBERS.items():
        if values.get(name) is not None:
            found[number.field] = round(values[name] * number.factor)
    return BalanceSettings(**found)


def default_of(name: str) -> bool | float:
    """Return the default of a setting, in its own unit."""
    if name in BALANCE_SWITCHES:
        return True
    number = BALANCE_NUMBERS[name]
    value: float = getattr(DEFAULT_BALANCE, number.field) / number.factor
    return int(value) if value.is_integer() else value


def _refused(name: str, number: BalanceName, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return f"{name} is no number"
    if not number.least <= value * number.factor <= number.most:
        least, most = (bound / number.factor for bound in (number.least, number.most))
        return f"{name} is {value}, {least:.6g} to {most:.6g} are allowed"
    if abs(value * number.factor - round(value * number.factor)) > 1e-6:
        what = "whole seconds are" if number.factor == _MINUTES else "a whole number is"
        return f"{name} is {value}, {what} needed"
    return ""
