"""The resolved policy over time, from levels of several logs."""

from __future__ import annotations

from dataclasses import replace

from nextgen.kernel.governance.auto_scale_policy import DEFAULT_AUTO_SCALE
from pipelines.backtest.levels import PolicyLevels
from pipelines.backtest.model import ChangedPolicy

TEN, TWENTY = (replace(DEFAULT_AUTO_SCALE, max_segments=each) for each in (10, 20))
SERVICE = [(0, DEFAULT_AUTO_SCALE), (100, TEN), (300, TWENTY)]
NAMESPACE = [(200, '{"minSegments":5}'), (400, "")]


def test_each_level_holds_from_its_time_on() -> None:
    levels = PolicyLevels(SERVICE, NAMESPACE)

    assert levels.at(99) == DEFAULT_AUTO_SCALE
    assert levels.at(100) == TEN
    assert levels.at(200) == replace(TEN, min_segments=5)
    assert levels.at(300) == replace(TWENTY, min_segments=5)
    assert levels.at(400) == TWENTY
    assert [levels.next_change(each) for each in (0, 100, 399, 400)] == [100, 200, 400, 0]


def test_the_topics_own_policy_is_above_both_and_contradictions_give_none() -> None:
    levels = PolicyLevels(SERVICE, NAMESPACE)
    levels.own = '{"maxSegments":4}'

    assert levels.at(100) == replace(DEFAULT_AUTO_SCALE, max_segments=4)
    assert levels.at(200) is None


def test_what_a_leader_may_have_known_is_what_held_within_the_slack() -> None:
    levels = PolicyLevels(SERVICE)

    assert set(levels.around(105, 10)) == {DEFAULT_AUTO_SCALE, TEN}
    assert set(levels.around(200, 10)) == {TEN}


def test_a_changed_service_level_holds_throughout_over_what_was_recorded() -> None:
    recorded = PolicyLevels(SERVICE, NAMESPACE)
    recorded.own = '{"maxDagDepth":3}'
    changed = recorded.changed(ChangedPolicy('{"splitCooldownSeconds":7}'), "acme/orders")
    own = {"max_dag_depth": 3, "split_cooldown_seconds": 7}

    assert changed.at(0) == replace(DEFAULT_AUTO_SCALE, **own)
    assert changed.at(300) == replace(TWENTY, min_segments=5, **own)
    assert recorded.at(0) == replace(DEFAULT_AUTO_SCALE, max_dag_depth=3)


def test_a_changed_namespace_replaces_what_that_namespace_had() -> None:
    recorded = PolicyLevels(SERVICE, NAMESPACE)
    change = ChangedPolicy(namespaces={"acme/orders": '{"maxSegments":2}'})

    assert recorded.changed(change, "acme/orders").at(250) == replace(TEN, max_segments=2)
    assert recorded.changed(change, "acme/other").at(250) == replace(TEN, min_segments=5)
