"""Other policies over a recorded load: layouts of their own, by the assumptions of the model."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

from pipelines.backtest.model import (
    ACTIONS,
    CHANGED,
    RECORDED,
    SAME,
    TOPICS,
    ChangedPolicy,
    LogFacts,
    Question,
)
from pipelines.generate.scaling.topic_history import TopicLife, history_of
from tests.support.scalable.shard import ScalableShard, in_scalable_shard
from tests.support.spark.auto_scale_run import recorded_run
from tests.support.spark.backtest_facts import (
    Tables,
    facts_of_events,
    facts_of_history,
    log_facts,
    tables_of,
)

BEGAN_MS, DAY_MS = 1_767_225_600_000, 86_400_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return recorded_run(tmp_path_factory.mktemp("run") / "shard")


def what_if(run: list[Any], **changed: Any) -> dict[str, dict[str, Any]]:
    """Return the topic's sums by scenario."""
    asked = Question(ChangedPolicy(**changed))
    tables = tables_of(facts_of_events(run), asked, log_facts(run))
    return {each["scenario"]: each for each in tables[TOPICS]}


def test_without_another_policy_only_what_happened_is_summed_up(run: list[Any]) -> None:
    tables = tables_of(facts_of_events(run), Question(), log_facts(run))

    assert [each["scenario"] for each in tables[TOPICS]] == [RECORDED]
    assert {each["scenario"] for each in tables[ACTIONS]} == {RECORDED}


def test_a_policy_that_is_turned_off_leaves_the_topic_as_it_was(run: list[Any]) -> None:
    sums = what_if(run, service='{"enabled":false}')

    off = sums[CHANGED]
    assert (off["splits"], off["merges"], off["rebuckets"], off["segments_last"]) == (0, 0, 0, 1)
    assert off["segment_ms"] == off["lived_ms"]
    assert off["hot_ms"] > sums[SAME]["hot_ms"]
    assert sums[RECORDED]["splits"] > 0


def test_a_namespaces_policy_is_replaced_and_another_namespace_is_not(run: list[Any]) -> None:
    two = what_if(run, namespaces={"acme/orders": '{"maxSegments":2}'})
    elsewhere = what_if(run, namespaces={"acme/other": '{"maxSegments":2}'})

    assert two[CHANGED]["segments_max"] == 2
    assert two[CHANGED]["short_ms"] >= two[SAME]["short_ms"]
    same = {key: value for key, value in elsewhere[SAME].items() if key != "scenario"}
    assert {key: elsewhere[CHANGED][key] for key in same} == same


def test_a_threshold_of_the_service_changes_when_it_is_split(run: list[Any]) -> None:
    sums = what_if(run, service='{"splitMsgRateInThreshold":40000}')

    assert sums[CHANGED]["hot_ms"] > sums[RECORDED]["hot_ms"], "by the recorded thresholds"
    assert sums[CHANGED]["own_hot_ms"] < sums[CHANGED]["hot_ms"]


def test_contradictory_levels_leave_the_topic_alone_and_are_counted(run: list[Any]) -> None:
    sums = what_if(run, service='{"minSegments":6}')

    assert sums[CHANGED]["unresolved_policies"] == 1, "the topic has at most 2 from then on"
    assert sums[SAME]["unresolved_policies"] == 0


def test_generated_topics_are_reproduced_and_the_model_is_close_to_what_it_models() -> None:
    tables = generated(8, Question(ChangedPolicy('{"splitMsgRateInThreshold":4000}')))
    (counts,) = tables["counts"]

    assert counts["decided"] == counts["reproduced"] > 20
    assert "differences" not in tables
    segment_ms = {scenario: summed(tables, scenario, "segment_ms") for scenario in (RECORDED, SAME)}
    assert segment_ms[SAME] == pytest.approx(segment_ms[RECORDED], rel=0.1)
    assert summed(tables, CHANGED, "splits") > summed(tables, SAME, "splits")
    assert summed(tables, CHANGED, "hot_ms") < summed(tables, SAME, "hot_ms")


def generated(topics: int, asked: Question) -> Tables:
    facts = []
    for number in range(topics):
        name, topic_id = f"topic://a/b/t{number}", f"{number:04}"
        life = TopicLife(number, name, topic_id, BEGAN_MS, BEGAN_MS + 3 * DAY_MS, None)
        facts += facts_of_history(topic_id, history_of(5, life))
    return tables_of(facts, asked, LogFacts({1: BEGAN_MS + 3 * DAY_MS}, {1: [(BEGAN_MS, 1)]}))


def summed(tables: Tables, scenario: str, column: str) -> int:
    return sum(each[column] for each in tables[TOPICS] if each["scenario"] == scenario)


def test_what_an_operator_asked_for_is_repeated_where_the_same_segments_are(tmp_path: Path) -> None:
    events = operated_run(tmp_path)
    asked = Question(ChangedPolicy('{"maxDagDepth":3}'))
    tables = tables_of(facts_of_events(events), asked, log_facts(events))
    sums = {each["scenario"]: each for each in tables[TOPICS]}

    assert [sums[each]["splits"] for each in (RECORDED, SAME, CHANGED)] == [2, 2, 2]
    assert {each["asked_by"] for each in tables[ACTIONS]} == {"operator"}
    assert sums[CHANGED]["skipped_operations"] == 0


def test_what_an_operator_asked_of_segments_that_are_not_there_is_skipped(run: list[Any]) -> None:
    plan = next(each for each in run if each.HasField("layout_change_planned"))
    plan = copy.deepcopy(plan)
    operation = plan.layout_change_planned
    operation.operation_id, operation.asked_by, operation.parents[:] = 99, "operator", [2]
    place = next(n for n, each in enumerate(run) if each.term > plan.term)
    plan.position, plan.time_ms = run[place - 1].position, run[place - 1].time_ms
    events = [*run[:place], plan]
    asked = Question(ChangedPolicy('{"enabled":false}'))
    tables = tables_of(facts_of_events(events), asked, log_facts(events))
    sums = {each["scenario"]: each for each in tables[TOPICS]}

    assert (sums[CHANGED]["splits"], sums[CHANGED]["skipped_operations"]) == (0, 1)


def operated_run(directory: Path) -> list[Any]:
    async def scenario(shard: ScalableShard) -> list[Any]:
        for segment in (0, 2):
            result = await shard.change("split", segment)
            assert not result.rejection_code
            await asyncio.sleep(5)
        return await shard.harness.events()

    return in_scalable_shard(directory / "operated", scenario)
