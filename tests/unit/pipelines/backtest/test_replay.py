"""The replay of a real leader's run, with failovers in it, and of runs that were tampered with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from pipelines.backtest.model import COUNTS, DIFFERENCES, Question
from pipelines.backtest.recorded_topic import DECIDED, RecordedTopic
from pipelines.backtest.replay import NOT_TAKEN, OF_ARGUMENTS, OF_LOG, WITHOUT_WHY
from shards.domain.scalable.events import LayoutChanged, ScalableTopicEvent, SegmentLoadsRecorded
from shards.domain.scalable.loads import LoadEvent, of_topic
from shards.domain.scalable.loads import evolve as evolve_loads
from shards.domain.scalable.state import evolve
from shards.wire.event import decode_event
from tests.support.spark.auto_scale_run import recorded_run
from tests.support.spark.backtest_facts import facts_of_events, log_facts, tables_of

ASKED = Question(slack_ms=10_000)
_SINGLE = (ScalableTopicEvent, LoadEvent)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return recorded_run(tmp_path_factory.mktemp("run") / "shard")


def differences(events: list[Any], asked: Question = ASKED) -> list[dict[str, Any]]:
    tables = tables_of(facts_of_events(events), asked, log_facts(events))
    return tables.get(DIFFERENCES, [])


def changed(run: list[Any], change: Callable[[list[Any]], None]) -> list[Any]:
    events = copy.deepcopy(run)
    change(events)
    return events


def decided(events: list[Any]) -> list[Any]:
    return [each for each in events if each.HasField(DECIDED)]


def test_a_run_with_failovers_is_reproduced_with_no_difference(run: list[Any]) -> None:
    tables = tables_of(facts_of_events(run), ASKED, log_facts(run))
    actions = [each.auto_scale_decided for each in decided(run)]

    assert len({each.term for each in run}) >= 4, "three leaders were lost"
    assert {each.kind for each in actions} == {"split", "merge", "rebucket"}
    assert len({each.term for each in decided(run)}) >= 3, "several leaders acted"
    assert tables.get(DIFFERENCES, []) == []
    (counts,) = tables[COUNTS]
    assert counts["decided"] == counts["reproduced"] == len(actions) >= 8


def test_its_topic_is_folded_as_the_shard_folds_it(run: list[Any]) -> None:
    topic = loads = None
    recorded: RecordedTopic | None = None
    by_position = {each.position: each for each in facts_of_events(run)}
    compared = 0
    for event in run:
        kind = event.WhichOneof("payload") or ""
        if not kind.startswith(("scalable_", "layout_", "segment", "auto_scale")):
            continue
        decoded: Any = decode_event(event)
        if kind != "segment_loads_recorded":
            topic = evolve(topic, decoded)
        if isinstance(decoded, SegmentLoadsRecorded | LayoutChanged):
            loads = evolve_loads(loads, decoded)
        fact = by_position.get(event.position)
        if fact is None:
            continue
        recorded = recorded or RecordedTopic(fact.topic_id, fact.shard_id)
        recorded.apply(fact)
        assert topic is not None
        known = of_topic(topic, loads)
        assert recorded.loads == dict(known.loads)
        assert recorded.clocks == known.clocks
        assert recorded.groups == topic.group_sizes
        assert bool(recorded.operation_id) is (topic.operation is not None)
        ranges = {key: (each.hash_range, each.is_sealed) for key, each in topic.segments.items()}
        of_recorded = recorded.segments.items()
        assert {key: (each.hash_range, each.is_sealed) for key, each in of_recorded} == ranges
        compared += 1
    assert compared > 50


def test_an_action_that_its_arguments_do_not_give_is_told_with_both(run: list[Any]) -> None:
    def other_segment(events: list[Any]) -> None:
        decided(events)[1].auto_scale_decided.segments[:] = [2]

    (of_arguments, of_log) = differences(changed(run, other_segment))

    place = decided(run)[1]
    assert (of_arguments["what"], of_log["what"]) == (OF_ARGUMENTS, OF_LOG)
    assert of_arguments["position"] == place.position
    assert of_arguments["topic"] == place.auto_scale_decided.name
    assert '"segments": [2]' in of_arguments["recorded"]
    assert '"segments": [1]' in of_arguments["decided"]
    assert '"messages_in": 30000.0' in of_arguments["recorded_arguments"]


@pytest.mark.parametrize("what", ["loads", "groups", "clocks", "policy"])
def test_arguments_that_the_log_does_not_give_are_told(run: list[Any], what: str) -> None:
    def other(events: list[Any]) -> None:
        why = decided(events)[2].auto_scale_decided
        if what == "loads":
            why.loads[0].rates.messages_out += 1
        elif what == "groups":
            why.groups.consumers += 1
        elif what == "clocks":
            why.clocks.merge_at_ms += 1
        else:
            why.policy = why.policy.replace('"maxDagDepth":10', '"maxDagDepth":11')

    told = differences(changed(run, other))

    assert [each["what"] for each in told] == [OF_LOG]
    assert told[0]["recorded_arguments"] != told[0]["decided_arguments"]


def test_an_action_that_is_due_and_not_taken_is_told_once(run: list[Any]) -> None:
    first = decided(run)[0]
    cut = [each for each in run if each.position < first.position - 1]
    last = copy.deepcopy(next(each for each in run if each.HasField("tenant_created")))

    def ends_after(elapsed_ms: int) -> list[Any]:
        last.position, last.term = first.position, 1
        last.time_ms = first.time_ms + elapsed_ms
        return differences([*cut, last])

    assert ends_after(ASKED.slack_ms - 1_000) == []
    (missing,) = ends_after(ASKED.slack_ms + 1_000)
    assert (missing["what"], missing["recorded"]) == (NOT_TAKEN, None)
    assert '"kind": "split"' in missing["decided"]


def test_a_new_leader_has_its_own_time_for_what_is_due(run: list[Any]) -> None:
    """While no leader is there nobody acts, and the log does not say when one came."""
    first = decided(run)[0]
    cut = [each for each in run if each.position < first.position - 1]
    last = copy.deepcopy(next(each for each in run if each.HasField("tenant_created")))
    last.position, last.term = first.position, 2
    last.time_ms = first.time_ms + 10 * ASKED.slack_ms

    assert differences([*cut, last]) == []


def test_an_operation_begun_by_itself_without_a_reason_is_told(run: list[Any]) -> None:
    lost = decided(run)[0]
    told = differences([each for each in run if each is not lost])

    assert [each["what"] for each in told] == [WITHOUT_WHY]
