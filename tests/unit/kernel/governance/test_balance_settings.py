"""The settings by which brokers are evened out: names, units, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextgen.kernel.governance.balance_settings import (
    BALANCE_NUMBERS,
    BALANCE_SWITCHES,
    DEFAULT_BALANCE,
    balance_of,
    default_of,
    problem,
)
from nextgen.kernel.limits.placement import (
    BALANCE_GRACE_SECONDS_MAX,
    BALANCE_INTERVAL_SECONDS_MAX,
    BALANCE_MOVES_PER_MINUTE_MAX,
    IDLE_UNLOAD_SECONDS_MAX,
)

EVERY = (*BALANCE_SWITCHES, *BALANCE_NUMBERS)


def test_the_defaults_under_their_names_are_the_defaults():
    values = {name: default_of(name) for name in EVERY}

    assert problem(values) == ""
    assert balance_of(values) == balance_of({}) == DEFAULT_BALANCE
    assert values["loadBalancerSheddingGracePeriodMinutes"] == 10


@pytest.mark.parametrize("name", BALANCE_SWITCHES)
def test_either_switch_turns_the_balance_off(name):
    assert balance_of({name: False}) == replace(DEFAULT_BALANCE, enabled=False)


@pytest.mark.parametrize("name", BALANCE_NUMBERS)
def test_a_number_sets_its_own_field_and_no_other(name):
    number = BALANCE_NUMBERS[name]
    least = number.least / number.factor

    assert problem({name: least}) == ""
    assert balance_of({name: least}) == replace(DEFAULT_BALANCE, **{number.field: number.least})


def test_minutes_may_have_a_fraction_as_long_as_seconds_have_none():
    name = "loadBalancerSheddingIntervalMinutes"

    assert balance_of({name: 0.25}).interval_seconds == 15
    assert problem({name: 0.26}) == f"{name} is 0.26, whole seconds are needed"


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("loadBalancerSheddingIntervalMinutes", BALANCE_INTERVAL_SECONDS_MAX),
        ("loadBalancerSheddingGracePeriodMinutes", BALANCE_GRACE_SECONDS_MAX),
        ("loadBalancerMaxMovesPerMinute", BALANCE_MOVES_PER_MINUTE_MAX),
        ("loadBalancerStartPermille", 1_000),
        ("loadBalancerGoalPermille", 1_000),
        ("loadBalancerBrokerOverloadedThresholdPercentage", 100),
        ("loadBalancerIdleUnloadSeconds", IDLE_UNLOAD_SECONDS_MAX),
    ],
)
def test_a_number_has_bounds(name, most):
    number = BALANCE_NUMBERS[name]
    below, beyond = (each / number.factor for each in (number.least - 1, most + 1))

    assert problem({name: most / number.factor}) == ""
    assert problem({name: beyond}).startswith(f"{name} is {beyond}, ")
    assert problem({name: below}).startswith(f"{name} is {below}, ")


@pytest.mark.parametrize("name", BALANCE_NUMBERS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "many", 2.0001])
def test_what_is_no_such_number_is_refused_by_name(name, value):
    assert problem({name: value}).startswith(f"{name} is ")


@pytest.mark.parametrize("name", BALANCE_SWITCHES)
def test_a_switch_is_true_or_false(name):
    assert problem({name: 1}) == f"{name} is neither true nor false"


def test_a_goal_beyond_the_start_is_refused():
    values = {"loadBalancerStartPermille": 40, "loadBalancerGoalPermille": 50}

    refused = problem(values)

    assert refused.startswith("loadBalancerGoalPermille is 50, at most loadBalancerStartPermille")
    assert problem(values | {"loadBalancerStartPermille": 50}) == ""
    assert problem(values | {"loadBalancerStartPermille": None}) == ""
