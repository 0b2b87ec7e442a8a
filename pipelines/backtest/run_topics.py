"""All topics of one task: facts in, by topic and position; rows of tables out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from pipelines.backtest.facts import NAMESPACE_POLICY, Fact, facts_of
from pipelines.backtest.levels import PolicyLevels
from pipelines.backtest.meter import Hours, no_hours
from pipelines.backtest.model import (
    CHANGED,
    COUNTS,
    DIFFERENCES,
    HOURS,
    SAME,
    LogFacts,
    Question,
)
from pipelines.backtest.recorded_topic import (
    DELETED,
    POLICY_CLEARED,
    POLICY_SET,
    RecordedTopic,
    namespace_in,
    override_in,
)
from pipelines.backtest.replay import Replay
from pipelines.backtest.what_if import WhatIf

ROWS = "array<struct<table:string,row:string>>"
"""What a fact gives: rows as JSON, each with the table that it is of."""

_ROWS = pa.list_(pa.struct([("table", pa.string()), ("row", pa.string())]))

Rows = list[tuple[str, str]]
Batches = Iterator[tuple[pa.Array, ...]]


def backtest_of(question: Question, log: LogFacts) -> Callable[[Batches], Iterator[pa.Array]]:
    """Return a function from batches of ``FACT_COLUMNS``, sorted by topic, to what each fact gives.

    What a topic gives at its end is given with a later fact, and what a task gives at its end with
    the last one.
    """

    def batches_of(batches: Batches) -> Iterator[pa.Array]:
        task = _Task(question, log)
        given: list[Rows | None] = []
        for columns in batches:
            if given:
                yield pa.array(given, _ROWS)
            given = [task.take(fact) or None for fact in facts_of(columns)]
        last = task.end()
        if given:
            given[-1] = [*(given[-1] or ()), *last]
            yield pa.array(given, _ROWS)

    return batches_of


class _Task:
    def __init__(self, question: Question, log: LogFacts) -> None:
        self._question = question
        self._log = log
        self._rows: Rows = []
        self._hours: Hours = no_hours()
        self._topic: _TopicRun | None = None
        self._topic_id = ""
        self._counts = dict.fromkeys(
            ("facts", "topics", "unknown_topics", "decided", "reproduced", "evaluations"), 0
        )

    def emit(self, table: str, row: dict[str, Any]) -> None:
        self._rows.append((table, json.dumps(row)))

    def take(self, fact: Fact) -> Rows:
        """Take a fact; return the rows that are complete by it."""
        self._rows = []
        self._counts["facts"] += 1
        if self._topic is None or fact.topic_id != self._topic_id:
            self._end_topic()
            self._topic_id = fact.topic_id
            self._topic = _TopicRun(fact, self._question, self._log, self._hours, self.emit)
        self._topic.take(fact)
        return self._rows

    def end(self) -> Rows:
        """End the last topic; return its rows, and the sums over all topics."""
        self._rows = []
        self._end_topic()
        for (scenario, hour_ms), sums in sorted(self._hours.items()):
            self.emit(HOURS, {"scenario": scenario, "hour_ms": hour_ms, **asdict(sums)})
        self.emit(COUNTS, self._counts)
        return self._rows

    def _end_topic(self) -> None:
        if self._topic is not None:
            for name, count in self._topic.end().items():
                self._counts[name] += count


class _TopicRun:
    """One topic, from its first fact to its last."""

    def __init__(
        self,
        first: Fact,
        question: Question,
        log: LogFacts,
        hours: Hours,
        emit: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._question = question
        self._log = log
        self._hours = hours
        self._emit = emit
        self._recorded = RecordedTopic(first.topic_id, first.shard_id)
        self._namespace: list[tuple[int, str]] = []
        self._position = 0
        self._runs: tuple[Replay, WhatIf, tuple[PolicyLevels, ...]] | None = None

    def take(self, fact: Fact) -> None:
        if fact.kind == NAMESPACE_POLICY:
            # They come first, in the order of time.
            self._namespace.append((fact.time_ms, override_in(fact.body)))
            return
        if self._runs is None:
            self._runs = self._begun(fact)
        replay, what_if, all_levels = self._runs
        topic = self._recorded
        self._position = fact.position
        for difference in replay.before(fact):
            self._emit(DIFFERENCES, difference.row(topic))
        what_if.before(fact)
        topic.apply(fact)
        if fact.kind in (POLICY_SET, POLICY_CLEARED):
            for levels in all_levels:
                levels.own = topic.own_policy
        replay.after(fact)
        if fact.kind == DELETED:
            what_if.close(fact.time_ms)
        else:
            what_if.after(fact)

    def end(self) -> dict[str, int]:
        """End the topic at the end of its shard's log; return what is to be counted."""
        if self._runs is None:
            return {}
        replay, what_if, _ = self._runs
        ends_ms = self._log.last_time_ms.get(self._recorded.shard_id, 0)
        for difference in replay.until(ends_ms, self._position):
            self._emit(DIFFERENCES, difference.row(self._recorded))
        what_if.close(ends_ms)
        is_known = bool(self._recorded.name)
        return {
            "topics": int(is_known),
            "unknown_topics": int(not is_known),
            "decided": replay.decided,
            "reproduced": replay.reproduced,
            "evaluations": replay.evaluations + what_if.evaluations,
        }

    def _begun(self, fact: Fact) -> tuple[Replay, WhatIf, tuple[PolicyLevels, ...]]:
        question, log = self._question, self._log
        recorded = PolicyLevels(log.service, self._namespace)
        scenarios = {}
        if question.changed is not None:
            namespace = namespace_in(fact.body.get("name", ""))
            scenarios[SAME] = PolicyLevels(log.service, self._namespace)
            scenarios[CHANGED] = recorded.changed(question.changed, namespace)
        terms = log.terms.get(fact.shard_id, ())
        replay = Replay(self._recorded, recorded, terms, question.slack_ms)
        what_if = WhatIf(
            self._recorded, recorded, scenarios, question.durations, self._hours, self._emit
        )
        return replay, what_if, (recorded, *scenarios.values())
