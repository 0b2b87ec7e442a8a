"""One topic in one simulated scenario: what it does is summed up, and written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nextgen.kernel.scalable.auto_scale import Action, ActionKind
from nextgen.kernel.scalable.ranges import HashRange
from nextgen.kernel.scalable.segment_load import SegmentLoad
from nextgen.kernel.scalable.segments import Segment
from pipelines.backtest.levels import PolicyLevels
from pipelines.backtest.meter import Condition, Meter, is_hot
from pipelines.backtest.model import ACTIONS
from pipelines.backtest.recorded_topic import RecordedTopic
from pipelines.scaling.scaled_topic import AUTO_SCALE, Begun, Durations, ScaledTopic
from pipelines.scaling.traffic import Traffic

Emit = Callable[[str, dict[str, Any]], None]
"""Takes a row, by the table that it is of."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario that is simulated: its name, its policies, and the recorded ones."""

    name: str
    levels: PolicyLevels
    recorded: PolicyLevels


class SimulatedTopic:
    """``run_until`` before the traffic changes; then what has changed, at the same time."""

    def __init__(
        self,
        scenario: Scenario,
        topic: RecordedTopic,
        traffic: Traffic,
        meter: Meter,
        durations: Durations,
        emit: Emit,
    ) -> None:
        self.meter = meter
        self.skipped = 0
        """Operators' operations that were not repeated."""
        self.unresolved = 0
        """Times at which the levels of the policy contradicted each other."""
        self._scenario = scenario
        self._topic = topic
        self._emit = emit
        self._levels = scenario.levels
        self._now_ms = meter.began_ms
        self._scaled = ScaledTopic(
            topic.active, traffic, self._levels.at(meter.began_ms), self, durations
        )
        self._measure(meter.began_ms)

    @property
    def evaluations(self) -> int:
        return self._scaled.evaluations

    def run_until(self, now_ms: int) -> None:
        """Let happen what happens by ``now_ms`` without anything recorded."""
        while edge_ms := self._levels.next_change(self._now_ms):
            if edge_ms > now_ms:
                break
            self._scaled.run_until(edge_ms)
            self._now_ms = edge_ms
            self._follow_policy(edge_ms)
        self._scaled.run_until(now_ms)
        self._now_ms = max(self._now_ms, now_ms)

    def note_traffic(self, now_ms: int, ranges: Sequence[HashRange]) -> None:
        """Take the traffic of ``ranges``, which has changed."""
        self._scaled.note_traffic(now_ms, ranges)
        self._measure(now_ms)

    def follow(self, now_ms: int) -> None:
        """Take consumers and the topic's own policy as they are recorded."""
        self._scaled.set_groups(now_ms, self._topic.groups)
        self._follow_policy(now_ms)

    def repeat(
        self, now_ms: int, action: Action, parents: Sequence[Segment], asked_by: str
    ) -> None:
        """Begin what an operator asked for of ``parents``, if there are segments like them."""
        by_range = {each.hash_range: each.segment_id for each in self._scaled.segments.values()}
        ids = [by_range.get(each.hash_range) for each in parents]
        if self._scaled.is_busy or None in ids:
            self.skipped += 1
            return
        own = Action(
            action.kind,
            tuple([each for each in ids if each is not None]),
            action.reason,
            action.buckets,
        )
        self._scaled.operate(now_ms, own, asked_by)

    def replace_segments(self, now_ms: int, segments: Iterable[Segment]) -> None:
        """Take the recorded segments in the place of its own."""
        self._scaled.replace_segments(now_ms, segments)
        self._measure(now_ms)

    # An ``Observer`` -----------------------------------------------------------------------------

    def recorded(self, at_ms: int, loads: Iterable[SegmentLoad]) -> None:
        """Nothing is summed up of loads: the traffic itself is."""

    def begun(self, begun: Begun) -> None:
        action = begun.action
        self.meter.count(begun.decided_at_ms, action.kind)
        is_own = begun.asked_by == AUTO_SCALE
        reason = action.reason.value if is_own else ""
        row = action_row(self._topic, self.meter.scenario, action, begun.decided_at_ms)
        self._emit(ACTIONS, {**row, "reason": reason, "asked_by": begun.asked_by})

    def committed(self, at_ms: int, begun: Begun, made: tuple[Segment, ...]) -> None:
        self._measure(at_ms)

    # ---------------------------------------------------------------------------------------------

    def _follow_policy(self, now_ms: int) -> None:
        self._levels.own = self._scenario.recorded.own
        policy = self._levels.at(now_ms)
        if policy is None and self._scaled.policy is not None:
            self.unresolved += 1
        self._scaled.set_policy(now_ms, policy)
        self._measure(now_ms)

    def _measure(self, now_ms: int) -> None:
        scaled = self._scaled
        rates = [
            scaled.traffic.of(each.hash_start, each.hash_end) for each in scaled.segments.values()
        ]
        recorded, own = self._scenario.recorded.at(now_ms), scaled.policy
        hot = is_hot(rates, recorded)
        own_hot = hot if own == recorded else is_hot(rates, own)
        is_short = scaled.groups.consumers > len(rates)
        self.meter.set(now_ms, Condition(len(rates), hot, own_hot, is_short))


def action_row(
    topic: RecordedTopic, scenario: str, action: Action, at_ms: int, position: int | None = None
) -> dict[str, Any]:
    """Return the columns of the table of actions."""
    return {
        "scenario": scenario,
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "shard_id": topic.shard_id,
        "position": position,
        "time_ms": at_ms,
        "kind": action.kind.value,
        "segments": list(action.segments),
        "buckets": action.buckets,
        "reason": action.reason.value,
        "asked_by": AUTO_SCALE,
    }


KINDS = frozenset(ActionKind)
"""Kinds of operations that a scenario may do; migrations and restores are taken over."""
