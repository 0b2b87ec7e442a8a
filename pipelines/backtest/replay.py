"""Whether the actions on a topic follow from its log.

For each recorded action, of its own arguments and of the log's: is it what ``decide`` returns?

    arguments    the event's loads, groups, policy, clocks and time; segments of the events before
    log          all but the time folded from the events before

And for each moment between two actions: was one due, and not taken within ``slack_ms``? The log
does not say when a leader evaluated a topic without acting, only when it acted. So an action may be
recorded later than the first moment at which it was due, but not by more than the slack, counted
anew from the first event of a leader's term.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nextgen.kernel.governance.auto_scale_policy import (
    DEFAULT_AUTO_SCALE,
    AutoScalePolicy,
    InvalidAutoScale,
    resolve,
)
from nextgen.kernel.limits.scalable import SEGMENTS_PER_TOPIC_MAX
from nextgen.kernel.scalable.auto_scale import (
    Action,
    ActionKind,
    Decision,
    GroupSizes,
    Reason,
    ScaleClocks,
    decide,
)
from nextgen.kernel.scalable.layout_operations import children_of
from nextgen.kernel.scalable.segment_load import SegmentLoad
from pipelines.backtest.facts import Fact, loads_in
from pipelines.backtest.levels import PolicyLevels
from pipelines.backtest.recorded_topic import DECIDED, PLANNED, RecordedTopic
from pipelines.scaling.scaled_topic import AUTO_SCALE

NOT_TAKEN = "due, and not taken"
OF_ARGUMENTS = "not what its own arguments give"
OF_LOG = "not what the log gives"
WITHOUT_WHY = "begun by itself, without a decision on record"


@dataclass(frozen=True, slots=True)
class Arguments:
    """All that a decision is made by but the segments. A policy of None makes no sense."""

    loads: tuple[SegmentLoad, ...]
    groups: GroupSizes
    policy: AutoScalePolicy | None
    clocks: ScaleClocks
    now_ms: int


@dataclass(frozen=True, slots=True)
class Difference:
    """``recorded`` and ``decided`` are actions, None for none."""

    position: int
    time_ms: int
    what: str
    recorded: Action | None
    decided: Action | None
    recorded_arguments: Arguments | None
    decided_arguments: Arguments | None

    def row(self, topic: RecordedTopic) -> dict[str, Any]:
        """Return the columns of the table of differences."""
        return {
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "shard_id": topic.shard_id,
            "position": self.position,
            "time_ms": self.time_ms,
            "what": self.what,
            "recorded": _json(self.recorded),
            "decided": _json(self.decided),
            "recorded_arguments": _json(self.recorded_arguments),
            "decided_arguments": _json(self.decided_arguments),
        }


class Replay:
    """The replay of one topic. Call ``before`` with each fact, apply it to the topic, then call
    ``after``; at the end ``until``. Each yields the differences that it finds."""

    def __init__(
        self,
        topic: RecordedTopic,
        levels: PolicyLevels,
        terms: Sequence[tuple[int, int]],
        slack_ms: int,
    ) -> None:
        self.decided = 0
        """Recorded actions so far."""
        self.reproduced = 0
        self.evaluations = 0
        self._topic = topic
        self._levels = levels
        self._terms = [began_ms for began_ms, _ in terms]
        self._slack_ms = slack_ms
        self._due: Action | None = None
        self._due_since_ms = 0
        self._is_told = False
        """Whether it was reported that the action which is due is not taken."""
        self._again_at_ms = 0
        self._now_ms = 0
        self._unexplained: tuple[int, int] | None = None
        """Operation and position of a plan whose decision has to be the next event."""

    def before(self, fact: Fact) -> Iterator[Difference]:
        """Look at the time up to ``fact``, and at the action that it records."""
        yield from self.until(fact.time_ms, fact.position)
        if self._unexplained is not None and not self._explains(fact):
            action = None if self._due is None else self._due
            position = self._unexplained[1]
            yield Difference(position, fact.time_ms, WITHOUT_WHY, None, action, None, None)
        self._unexplained = None
        if fact.kind == DECIDED:
            yield from self._judged(fact)
        elif fact.kind == PLANNED and fact.body.get("asked_by") == AUTO_SCALE:
            self._unexplained = (fact.body["operation_id"], fact.position)

    def after(self, fact: Fact) -> None:
        """Look at the topic as it is behind ``fact``."""
        if fact.kind != DECIDED:
            self._look(fact.time_ms)

    def until(self, now_ms: int, position: int) -> Iterator[Difference]:
        """Look at the moments up to ``now_ms`` at which time alone may change the decision."""
        while edge_ms := self._next_edge(now_ms):
            self._look(edge_ms)
        self._now_ms = max(self._now_ms, now_ms)
        if self._due is None or self._is_told:
            return
        place = bisect_right(self._terms, now_ms) - 1
        term_began_ms = self._terms[place] if place >= 0 else 0
        since_ms = max(self._due_since_ms, term_began_ms)
        if now_ms - since_ms > self._slack_ms:
            self._is_told = True
            due = Arguments(*self._known(), self._levels.at(since_ms), self._topic.clocks, since_ms)
            yield Difference(position, now_ms, NOT_TAKEN, None, self._due, None, due)

    # ---------------------------------------------------------------------------------------------

    def _next_edge(self, now_ms: int) -> int:
        """Return the next edge up to ``now_ms``, 0 if there is none."""
        edges = (self._again_at_ms, self._levels.next_change(self._now_ms))
        edge_ms = min([each for each in edges if each], default=0)
        return edge_ms if edge_ms <= now_ms else 0

    def _look(self, now_ms: int) -> None:
        self._again_at_ms = 0
        self._now_ms = max(self._now_ms, now_ms)
        topic = self._topic
        if topic.operation_id or not topic.exists or not (topic.loads or topic.groups.consumers):
            self._due, self._is_told = None, False
            return
        policy = self._levels.at(now_ms)
        decision = None
        if policy is not None:
            self.evaluations += 1
            decision = decide(topic.active, topic.loads, topic.groups, policy, topic.clocks, now_ms)
        action = None if decision is None else decision.action
        if action is not None and self._is_refused(action):
            action = None
        if action is None:
            self._due, self._is_told = None, False
            self._again_at_ms = 0 if decision is None else decision.again_at_ms
        elif self._due is None:
            self._due, self._due_since_ms = action, now_ms
        else:
            self._due = action

    def _known(self) -> tuple[tuple[SegmentLoad, ...], GroupSizes]:
        topic = self._topic
        loads = [topic.loads.get(each.segment_id) for each in topic.active]
        known = [each for each in loads if each is not None]
        return tuple(sorted(known, key=lambda each: each.segment_id)), topic.groups

    def _decide(self, given: Arguments) -> Decision | None:
        if given.policy is None:
            return None
        self.evaluations += 1
        loads = {each.segment_id: each for each in given.loads}
        active = self._topic.active
        return decide(active, loads, given.groups, given.policy, given.clocks, given.now_ms)

    def _is_refused(self, action: Action) -> bool:
        """Whether the shard refuses it: its topic would have too many segments."""
        topic = self._topic
        made = len(children_of(action, topic.segments))
        return len(topic.segments) + made > SEGMENTS_PER_TOPIC_MAX

    def _explains(self, fact: Fact) -> bool:
        assert self._unexplained is not None, "it is asked of a plan"
        return fact.kind == DECIDED and fact.body.get("operation_id") == self._unexplained[0]

    def _judged(self, fact: Fact) -> Iterator[Difference]:
        """Compare a recorded action with what its arguments give, and with what the log gives."""
        self.decided += 1
        body = fact.body
        recorded = Action(
            ActionKind(body["kind"]),
            tuple(body.get("segments") or ()),
            Reason(body["reason"]),
            body.get("buckets", 0),
        )
        own = _arguments_in(body)
        found = []
        of_arguments = self._action(own)
        if of_arguments != recorded:
            found.append((OF_ARGUMENTS, of_arguments, own))
        given = self._of_log(own)
        of_log = self._action(given)
        if of_log != recorded or given != own:
            found.append((OF_LOG, of_log, given))
        for what, action, by in found:
            yield Difference(fact.position, own.now_ms, what, recorded, action, own, by)
        self.reproduced += not found

    def _of_log(self, own: Arguments) -> Arguments:
        """Return the arguments as the events before have them, at the time of the evaluation."""
        policies = self._levels.around(own.now_ms, self._slack_ms)
        policy = next((each for each in policies if each == own.policy), None)
        if policy is None:
            policy = self._levels.at(own.now_ms)
        return Arguments(*self._known(), policy, self._topic.clocks, own.now_ms)

    def _action(self, given: Arguments) -> Action | None:
        decision = self._decide(given)
        return None if decision is None else decision.action


def _arguments_in(body: dict[str, Any]) -> Arguments:
    groups, clocks = body.get("groups") or {}, body.get("clocks") or {}
    try:
        policy = resolve(DEFAULT_AUTO_SCALE, body.get("policy", ""))
    except InvalidAutoScale:
        policy = None
    return Arguments(
        loads_in(body),
        GroupSizes(groups.get("consumers", 0), groups.get("sharing", 0)),
        policy,
        ScaleClocks(
            clocks.get("split_at_ms", 0),
            clocks.get("merge_at_ms", 0),
            clocks.get("rebucket_at_ms", 0),
        ),
        body.get("evaluated_at_ms", 0),
    )


def _json(value: Action | Arguments | None) -> str | None:
    return None if value is None else json.dumps(asdict(value), sort_keys=True)
