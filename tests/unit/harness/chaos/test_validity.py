"""A run with too little traffic or too few faults proves nothing."""

from __future__ import annotations

import pytest

from nextgen.harness.chaos.schedule import OF_CLUSTER, FaultKind
from nextgen.harness.chaos.validity import (
    ACKED_PER_SECOND_MIN,
    LAYOUT_CHANGES_MIN_PER_MINUTE,
    OBSERVATIONS_MIN_PER_MINUTE,
    OPERATIONS_PER_SECOND_MIN,
    RENAMES_MIN_PER_MINUTE,
    faults_needed,
    invalid_because,
)


def reasons(**changed: object) -> list[str]:
    enough: dict[str, object] = {
        "minutes": 3,
        "lasted_s": 180,
        "operations": OPERATIONS_PER_SECOND_MIN * 180,
        "acked": ACKED_PER_SECOND_MIN * 180,
        "observed": OBSERVATIONS_MIN_PER_MINUTE * 3,
        "available": OF_CLUSTER,
        "happened": dict.fromkeys(OF_CLUSTER, 1),
        "missing": {},
        "renames": RENAMES_MIN_PER_MINUTE * 3,
        "layout_changes": LAYOUT_CHANGES_MIN_PER_MINUTE * 3,
    }
    return invalid_because(**(enough | changed))  # type: ignore[arg-type]


def test_a_run_with_just_enough_of_everything_is_valid():
    assert reasons() == []
    assert reasons(layout_changes=None) == [], "there are no scalable topics"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("operations", OPERATIONS_PER_SECOND_MIN * 180 - 1),
        ("acked", ACKED_PER_SECOND_MIN * 180 - 1),
        ("observed", OBSERVATIONS_MIN_PER_MINUTE * 3 - 1),
        ("renames", RENAMES_MIN_PER_MINUTE * 3 - 1),
        ("layout_changes", LAYOUT_CHANGES_MIN_PER_MINUTE * 3 - 1),
    ],
)
def test_a_run_with_one_too_few_is_not_valid(name, value):
    assert len(reasons(**{name: value})) == 1


def test_a_run_that_lasts_longer_needs_more_traffic_and_no_more_faults():
    assert [sentence.split(",")[0] for sentence in reasons(lasted_s=360)] == [
        "only 900 operations",
        "only 360 operations were acknowledged",
        "watchers saw only 30 events",
        "only 9 topics were renamed",
        "only 15 layouts were changed",
    ]


@pytest.mark.parametrize("kind", OF_CLUSTER)
def test_each_kind_that_can_be_made_has_to_happen(kind):
    happened = {one: 1 for one in OF_CLUSTER if one is not kind}

    (sentence,) = reasons(happened=happened)

    assert str(kind) in sentence


def test_what_happens_to_brokers_has_to_happen_to_brokers():
    of_brokers = (FaultKind.KILL, FaultKind.PAUSE)

    assert (
        reasons(available_to_brokers=of_brokers, happened_to_brokers=dict.fromkeys(of_brokers, 1))
        == []
    )
    (sentence,) = reasons(available_to_brokers=of_brokers, happened_to_brokers={FaultKind.PAUSE: 1})
    assert "kill of a broker happened 0 times" in sentence


def test_a_kind_that_cannot_be_made_here_is_not_missed():
    available = [kind for kind in OF_CLUSTER if kind is not FaultKind.PARTITION]

    assert reasons(available=available, happened=dict.fromkeys(available, 1)) == []


@pytest.mark.parametrize(("minutes", "needed"), [(0.5, 1), (3, 1), (5.9, 1), (6, 2), (30, 10)])
def test_a_kind_has_to_happen_once_in_three_minutes(minutes, needed):
    assert faults_needed(minutes) == needed


def test_a_kind_of_fault_that_cannot_be_made_here_makes_a_run_invalid():
    assert reasons(missing={FaultKind.PARTITION: "there is no ip command"}) == [
        "no partition could be made here (there is no ip command); "
        "--allow-missing-faults leaves it out"
    ]
