"""Schedules of faults: the same seed, the same faults, and never more than a minority."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.harness.chaos.schedule import (
    OF_CLUSTER,
    OF_UNITS,
    RECOVER_MS,
    STEPS_MAX,
    FaultKind,
    FaultStep,
    Group,
    Role,
    Schedule,
    kinds_of_brokers,
    make_schedule,
    minority_of,
)
from nextgen.kernel.errors import RefusesToStart

SIZES = {
    Group.SHARD_NODE: 3,
    Group.MANAGER: 3,
    Group.BROKER: 3,
    Group.DISCOVERY: 2,
    Group.UNITS: 3,
}
OWN = (*OF_CLUSTER, *OF_UNITS)
seeds = st.integers(min_value=0, max_value=2**63 - 1)
lengths = st.integers(min_value=1, max_value=12)


def overlaps(steps: Sequence[FaultStep], recover_ms: int = RECOVER_MS) -> Iterator[str]:
    """Yield a sentence for each pair of faults that break the rule of the minority."""
    busy_until: dict[Group, tuple[int, FaultStep]] = {}
    for step in sorted(steps, key=lambda one: one.at_ms):
        rivals = tuple(busy_until) if step.group == Group.ALL else (step.group, Group.ALL)
        for group in rivals:
            until_ms, before = busy_until.get(group, (0, step))
            if until_ms > step.at_ms:
                yield f"{step.kind} at {step.at_ms} ms meets {before.kind} of {before.at_ms} ms"
        busy_until[step.group] = (step.at_ms + step.for_ms + recover_ms, step)


@given(seeds, lengths)
@settings(max_examples=50, deadline=None)
def test_a_seed_gives_the_same_schedule_each_time(seed, minutes):
    again = make_schedule(seed, minutes, OF_CLUSTER, SIZES)

    assert make_schedule(seed, minutes, OF_CLUSTER, SIZES) == again


def test_two_seeds_give_different_schedules():
    first, second = (make_schedule(seed, 3, OF_CLUSTER, SIZES) for seed in (1, 2))

    assert first.steps != second.steps


@given(seeds, lengths)
@settings(max_examples=100, deadline=None)
def test_no_group_ever_has_more_than_one_process_in_trouble(seed, minutes):
    schedule = make_schedule(seed, minutes, OF_CLUSTER, SIZES)

    for at_ms in {step.at_ms for step in schedule.steps}:
        broken = [s for s in schedule.steps if s.at_ms <= at_ms < s.at_ms + max(1, s.for_ms)]
        for group, size in SIZES.items():
            in_trouble = sum(step.group == group for step in broken)
            assert in_trouble <= minority_of(group, size)
        if any(step.kind is FaultKind.RESTART_ALL for step in broken):
            assert len(broken) == 1
    assert list(overlaps(schedule.steps)) == []


@given(seeds, lengths)
@settings(max_examples=100, deadline=None)
def test_every_kind_of_fault_happens_in_every_run(seed, minutes):
    schedule = make_schedule(seed, minutes, OWN, SIZES)

    assert {step.kind for step in schedule.steps} == set(OWN)


@given(seeds, lengths)
@settings(max_examples=100, deadline=None)
def test_every_minute_kills_and_freezes_a_broker_and_moves_units(seed, minutes):
    schedule = make_schedule(seed, minutes, OWN, SIZES)

    for block in range(minutes):
        steps = [s for s in schedule.steps if s.at_ms // 60_000 == block]
        of_brokers = {step.kind for step in steps if step.group is Group.BROKER}
        assert of_brokers >= {FaultKind.KILL, FaultKind.PAUSE}
        assert {step.kind for step in steps if step.group is Group.UNITS} == set(OF_UNITS)
    assert {s.group for s in schedule.steps if s.kind in OF_UNITS} == {Group.UNITS}


def test_what_surely_happens_to_a_broker_depends_on_how_many_there_are():
    both = [FaultKind.KILL, FaultKind.PAUSE]

    assert kinds_of_brokers(OWN, SIZES) == both
    assert kinds_of_brokers([FaultKind.PAUSE], SIZES) == [FaultKind.PAUSE]
    assert kinds_of_brokers(OWN, SIZES | {Group.BROKER: 2}) == []
    assert kinds_of_brokers(OWN, SIZES, {FaultKind.KILL: [Group.SHARD_NODE]}) == [FaultKind.PAUSE]


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_what_cannot_be_made_here_does_not_happen(seed):
    kinds = [kind for kind in OF_CLUSTER if kind is not FaultKind.PARTITION]

    schedule = make_schedule(seed, 3, kinds, SIZES)

    assert {step.kind for step in schedule.steps} == set(kinds)


def test_a_group_without_a_minority_is_left_in_peace():
    sizes = {Group.SHARD_NODE: 3, Group.MANAGER: 1, Group.BROKER: 2, Group.DISCOVERY: 1}

    schedule = make_schedule(5, 6, OF_CLUSTER, sizes)

    assert {step.group for step in schedule.steps} == {Group.SHARD_NODE, Group.ALL}


@pytest.mark.parametrize(
    ("group", "size", "minority"),
    [
        (Group.SHARD_NODE, 1, 0),
        (Group.SHARD_NODE, 2, 0),
        (Group.SHARD_NODE, 3, 1),
        (Group.MANAGER, 5, 2),
        (Group.DISCOVERY, 2, 1),
        (Group.DISCOVERY, 0, 0),
    ],
)
def test_a_minority_leaves_a_majority_or_one_that_needs_nobody(group, size, minority):
    assert minority_of(group, size) == minority


def test_two_faults_in_one_group_at_a_time_are_reported():
    step = FaultStep(1_000, 500, FaultKind.KILL, Group.SHARD_NODE)
    other = replace(step, at_ms=1_400)
    elsewhere = replace(step, at_ms=1_400, group=Group.BROKER)
    everything = FaultStep(1_400, 100, FaultKind.RESTART_ALL, Group.ALL)

    assert len(list(overlaps([step, other], recover_ms=0))) == 1
    assert len(list(overlaps([step, everything], recover_ms=0))) == 1
    assert list(overlaps([step, elsewhere], recover_ms=0)) == []


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_a_stored_schedule_is_the_same_when_it_is_read(seed):
    schedule = make_schedule(seed, 3, OF_CLUSTER, SIZES)

    assert Schedule.from_json(schedule.to_json()) == schedule


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 99}',
        '{"format": 1, "seed": 1, "minutes": 1, "steps": [{}]}',
        '{"format": 1, "seed": 1, "minutes": 1, "steps": 7}',
        '{"format": 1, "seed": 1, "minutes": 1, "steps": [{"at_ms": -1, "for_ms": 0, '
        '"kind": "kill", "group": "broker", "role": "any", "pick": 0, "detail": {}}]}',
        '{"format": 1, "seed": 1, "minutes": 1, "steps": [{"at_ms": 1, "for_ms": 0, '
        '"kind": "flood", "group": "broker", "role": "any", "pick": 0, "detail": {}}]}',
    ],
)
def test_what_is_no_schedule_is_refused(text):
    with pytest.raises(RefusesToStart):
        Schedule.from_json(text)


def test_a_schedule_has_at_most_so_many_faults():
    step = {
        "at_ms": 0,
        "for_ms": 0,
        "kind": "kill",
        "group": "broker",
        "role": str(Role.ANY),
        "pick": 0,
        "detail": {},
    }
    document = {"format": 1, "seed": 1, "minutes": 1, "steps": [step] * STEPS_MAX}

    assert len(Schedule.from_json(json.dumps(document)).steps) == STEPS_MAX
    document["steps"] = [step] * (STEPS_MAX + 1)
    with pytest.raises(RefusesToStart):
        Schedule.from_json(json.dumps(document))


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_a_kind_happens_only_where_it_may(seed):
    places = {FaultKind.KILL: {Group.BROKER}, FaultKind.PARTITION: {Group.MANAGER}}

    schedule = make_schedule(seed, 3, OF_CLUSTER, SIZES, places)

    for kind, groups in places.items():
        assert {step.group for step in schedule.steps if step.kind is kind} == groups
    assert {step.kind for step in schedule.steps} == set(OF_CLUSTER)
