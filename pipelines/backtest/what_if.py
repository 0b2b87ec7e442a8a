"""The scenarios of one topic: what happened, and what other policies would have made of its load.

A scenario's layout is its own; traffic, consumers and what operators asked for are the recorded
ones. An operator's operation is repeated where segments of the same ranges are active and no other
operation is under way; else it is skipped, and counted. A migration or a restore gives every
scenario the recorded segments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nextgen.kernel.scalable.auto_scale import Action, ActionKind, Reason
from nextgen.kernel.scalable.segment_load import SegmentLoad
from pipelines.backtest.facts import LOADS, Fact, segments_in
from pipelines.backtest.levels import PolicyLevels
from pipelines.backtest.meter import Condition, Hours, Meter, is_hot
from pipelines.backtest.model import ACTIONS, RECORDED, TOPICS
from pipelines.backtest.recorded_topic import (
    CHANGED,
    CREATED,
    DECIDED,
    PLANNED,
    RESTORED,
    RecordedTopic,
)
from pipelines.backtest.simulated import KINDS, Emit, Scenario, SimulatedTopic, action_row
from pipelines.scaling.scaled_topic import AUTO_SCALE, Durations
from pipelines.scaling.traffic import Traffic

_PRUNE = "prune"


class WhatIf:
    """All scenarios of one topic. Call ``before`` with each fact, apply it to the topic, then call
    ``after``; ``close`` last. ``levels`` are the recorded ones."""

    def __init__(
        self,
        topic: RecordedTopic,
        levels: PolicyLevels,
        scenarios: Mapping[str, PolicyLevels],
        durations: Durations,
        hours: Hours,
        emit: Emit,
    ) -> None:
        self._topic = topic
        self._levels = levels
        self._scenarios = scenarios
        self._durations = durations
        self._hours = hours
        self._emit = emit
        self._traffic = Traffic()
        self._meter: Meter | None = None
        self._simulated: Sequence[SimulatedTopic] = ()

    @property
    def evaluations(self) -> int:
        return sum(each.evaluations for each in self._simulated)

    def before(self, fact: Fact) -> None:
        """Let happen in every scenario what happens before ``fact``."""
        for each in self._simulated:
            each.run_until(fact.time_ms)
        if fact.kind == PLANNED and self._meter is not None:
            self._take_plan(fact, self._meter)

    def after(self, fact: Fact) -> None:
        """Take what ``fact`` says of traffic, consumers, policies and layout."""
        now_ms = fact.time_ms
        if fact.kind in (CREATED, RESTORED):
            self._begin(now_ms)
        if self._meter is None:
            return
        if fact.kind == LOADS:
            self._take_loads(now_ms, fact.loads)
        elif fact.kind == CHANGED:
            if fact.body.get("kind") not in (*KINDS, _PRUNE):
                for each in self._simulated:
                    each.replace_segments(now_ms, self._topic.active)
        elif fact.kind == DECIDED:
            self._take_action(fact)
        elif fact.kind != PLANNED:
            for each in self._simulated:
                each.follow(now_ms)
        self._measure(self._meter, now_ms)

    def close(self, now_ms: int) -> None:
        """End the topic's history; emit what came of it."""
        if self._meter is None:
            return
        self._emit(TOPICS, self._row(self._meter, now_ms))
        for each in self._simulated:
            each.run_until(now_ms)
            counts = {"skipped_operations": each.skipped, "unresolved_policies": each.unresolved}
            self._emit(TOPICS, {**self._row(each.meter, now_ms), **counts})
        self._meter = None

    # ---------------------------------------------------------------------------------------------

    def _begin(self, now_ms: int) -> None:
        self._meter = Meter(RECORDED, self._hours, now_ms)
        self._simulated = [
            SimulatedTopic(
                Scenario(name, levels, self._levels),
                self._topic,
                self._traffic,
                Meter(name, self._hours, now_ms),
                self._durations,
                self._emit,
            )
            for name, levels in self._scenarios.items()
        ]

    def _take_loads(self, now_ms: int, loads: Sequence[SegmentLoad]) -> None:
        ranges = []
        for load in loads:
            segment = self._topic.segments.get(load.segment_id)
            if segment is not None:
                ranges.append(segment.hash_range)
                self._traffic.record(segment.hash_start, segment.hash_end, load.rates)
        for each in self._simulated:
            each.note_traffic(now_ms, ranges)

    def _take_plan(self, fact: Fact, meter: Meter) -> None:
        """Count an operation; repeat it if somebody asked for it."""
        kind, asked_by = fact.body.get("kind", ""), fact.body.get("asked_by", "")
        if kind not in KINDS:
            return
        meter.count(fact.time_ms, ActionKind(kind))
        if asked_by == AUTO_SCALE:
            return
        ids = tuple(fact.body.get("parents") or ())
        parents = [self._topic.segments[each] for each in ids]
        made = segments_in(fact.body, "children")
        buckets = made[0].bucket_count if kind == ActionKind.REBUCKET else 0
        # Nobody decided it, so there is no reason either.
        action = Action(ActionKind(kind), ids, Reason.NOT_REACHED, buckets)
        row = action_row(self._topic, RECORDED, action, fact.time_ms, fact.position)
        self._emit(ACTIONS, {**row, "reason": "", "asked_by": asked_by})
        for each in self._simulated:
            each.repeat(fact.time_ms, action, parents, asked_by)

    def _take_action(self, fact: Fact) -> None:
        body = fact.body
        kind, reason = ActionKind(body["kind"]), Reason(body["reason"])
        action = Action(kind, tuple(body.get("segments") or ()), reason, body.get("buckets", 0))
        at_ms = body.get("evaluated_at_ms", 0)
        self._emit(ACTIONS, action_row(self._topic, RECORDED, action, at_ms, fact.position))

    def _measure(self, meter: Meter, now_ms: int) -> None:
        active = self._topic.active
        rates = [self._traffic.of(each.hash_start, each.hash_end) for each in active]
        hot = is_hot(rates, self._levels.at(now_ms))
        short = self._topic.groups.consumers > len(active)
        meter.set(now_ms, Condition(len(active), hot, hot, short))

    def _row(self, meter: Meter, now_ms: int) -> dict[str, Any]:
        topic = self._topic
        return {
            "scenario": meter.scenario,
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "shard_id": topic.shard_id,
            **meter.close(now_ms),
            "skipped_operations": 0,
            "unresolved_policies": 0,
        }
