"""One scalable topic as it would be: its segments follow what ``auto_scale.decide`` returns.

    loads, consumers, policy ─▶ evaluated ─▶ an operation ─▶ committed after a while
          a time is over ─────────╯             ╰─▶ its segments' first loads after another while

It does what a shard's leader does with a topic, at the same occasions: when something changes, and
when a decision may be another one by time alone. Between them nothing is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from nextgen.kernel.governance.auto_scale_policy import AutoScalePolicy
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.limits.scalable import SEGMENT_LOAD_REPORT_MS
from nextgen.kernel.scalable.auto_scale import (
    NEVER_CHANGED,
    Action,
    Decision,
    GroupSizes,
    ScaleClocks,
    decide,
)
from nextgen.kernel.scalable.layout_operations import Child, children_of, clocks_after
from nextgen.kernel.scalable.ranges import HashRange
from nextgen.kernel.scalable.segment_load import SegmentLoad, newly_recorded
from nextgen.kernel.scalable.segments import Segment
from pipelines.scaling.traffic import Traffic

AUTO_SCALE = "auto_scale"
"""Who asked for an operation that was begun by itself, as events say it."""

OPERATION_MS = 500
"""From the decision to the committed layout, unless another duration is asked for."""


@dataclass(frozen=True, slots=True)
class Durations:
    """What takes time in a cluster, in milliseconds."""

    operation_ms: int = OPERATION_MS
    first_report_ms: int = SEGMENT_LOAD_REPORT_MS
    """From a committed operation to the first loads of the segments that it made."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An operation from its decision on, with all that the decision was made by."""

    action: Action
    children: tuple[Child, ...]
    decided_at_ms: int
    groups: GroupSizes
    policy: AutoScalePolicy | None
    loads: tuple[SegmentLoad, ...]
    clocks: ScaleClocks
    asked_by: str


class Observer(Protocol):
    """Hears what happens to a topic, in order. It changes nothing."""

    def recorded(self, at_ms: int, loads: Iterable[SegmentLoad]) -> None: ...

    def begun(self, begun: Begun) -> None: ...

    def committed(self, at_ms: int, begun: Begun, made: tuple[Segment, ...]) -> None: ...


class ScaledTopic:
    """``segments`` are the active ones, by id. A policy of None: it makes no sense, and the topic
    is left alone. ``traffic`` belongs to the caller: call ``run_until`` before it changes, and
    ``note_traffic`` behind it."""

    def __init__(
        self,
        segments: Iterable[Segment],
        traffic: Traffic,
        policy: AutoScalePolicy | None,
        observer: Observer,
        durations: Durations = Durations(),
    ) -> None:
        self.segments: dict[int, Segment] = {each.segment_id: each for each in segments}
        self.traffic = traffic
        self.loads: dict[int, SegmentLoad] = {}
        self.groups = GroupSizes()
        self.clocks = NEVER_CHANGED
        self.policy = policy
        self.epoch = 0
        self.evaluations = 0
        self._observer = observer
        self._durations = durations
        self._next_id = max(self.segments, default=-1) + 1
        self._operation: Begun | None = None
        self._reported: set[int] = set(self.segments)
        """Segments of which loads are recorded: the others are too new."""
        self._has_loads = False
        self._commit_at_ms = 0
        self._report_at_ms = 0
        self._again_at_ms = 0

    @property
    def is_busy(self) -> bool:
        """Whether an operation is under way."""
        return self._operation is not None

    # What happens to it --------------------------------------------------------------------------

    def run_until(self, now_ms: int) -> None:
        """Do what is due before ``now_ms`` or then."""
        while True:
            due = [each for each in self._due() if each <= now_ms]
            if not due:
                return
            self._do_due(min(due))

    def note_traffic(self, now_ms: int, ranges: Iterable[HashRange]) -> None:
        """Take the traffic of ``ranges`` as it is from ``now_ms`` on."""
        touched = [
            each.segment_id
            for each in self.segments.values()
            if each.segment_id in self._reported
            and any(each.hash_start <= one.end and each.hash_end >= one.start for one in ranges)
        ]
        self._sample(touched, now_ms)
        self._evaluate(now_ms)

    def set_groups(self, now_ms: int, groups: GroupSizes) -> None:
        """Take the sizes of its groups of consumers as they are from ``now_ms`` on."""
        self.run_until(now_ms)
        if groups != self.groups:
            self.groups = groups
            self._evaluate(now_ms)

    def set_policy(self, now_ms: int, policy: AutoScalePolicy | None) -> None:
        """Take another policy from ``now_ms`` on."""
        self.run_until(now_ms)
        if policy != self.policy:
            self.policy = policy
            # Which segments are cold is marked by the policy.
            self._write({}, now_ms)
            self._evaluate(now_ms)

    def operate(self, now_ms: int, action: Action, asked_by: str) -> None:
        """Begin an operation of active segments that somebody asked for; none is under way."""
        self._begin(action, now_ms, asked_by)

    def replace_segments(self, now_ms: int, segments: Iterable[Segment]) -> None:
        """Take other segments in the place of all, as a migration and a restore do."""
        self._operation, self._commit_at_ms = None, 0
        self.segments = {each.segment_id: each for each in segments}
        self.loads.clear()
        self._reported.clear()
        self._next_id = max([self._next_id, *[each + 1 for each in self.segments]])
        self._report_at_ms = now_ms + self._durations.first_report_ms

    # Time ----------------------------------------------------------------------------------------

    def _due(self) -> list[int]:
        times = (self._commit_at_ms, self._report_at_ms, self._again_at_ms)
        return [each for each in times if each]

    def _do_due(self, at_ms: int) -> None:
        if self._commit_at_ms == at_ms:
            self._commit(at_ms)
        if self._report_at_ms == at_ms:
            self._report_at_ms = 0
            new = self.segments.keys() - self._reported
            self._reported |= new
            self._sample(new, at_ms)
        self._evaluate(at_ms)

    def _sample(self, numbers: Iterable[int], now_ms: int) -> None:
        """Record what moved by enough, as the shard does."""
        samples: dict[int, Rates] = {}
        for number in numbers:
            segment = self.segments[number]
            samples[number] = self.traffic.of(segment.hash_start, segment.hash_end)
        self._write(samples, now_ms)

    def _write(self, samples: Mapping[int, Rates], now_ms: int) -> None:
        if self.policy is None:
            return
        numbers = samples or self.segments
        loads = newly_recorded(numbers, self.loads, samples, self.policy, now_ms)
        if loads:
            self._has_loads = True
            self.loads.update({each.segment_id: each for each in loads})
            self._observer.recorded(now_ms, loads)

    # Deciding ------------------------------------------------------------------------------------

    def _evaluate(self, now_ms: int) -> None:
        self._again_at_ms = 0
        if self._operation is not None or self.policy is None:
            return
        decision = self._decide(self.policy, now_ms)
        self._again_at_ms = decision.again_at_ms
        if decision.action is not None:
            self._begin(decision.action, now_ms, AUTO_SCALE)

    def _decide(self, policy: AutoScalePolicy, now_ms: int) -> Decision:
        self.evaluations += 1
        segments = tuple(self.segments.values())
        return decide(segments, self.loads, self.groups, policy, self.clocks, now_ms)

    def _begin(self, action: Action, now_ms: int, asked_by: str) -> None:
        self._again_at_ms = 0
        self._operation = Begun(
            action,
            tuple(children_of(action, self.segments)),
            now_ms,
            self.groups,
            self.policy,
            tuple(sorted(self.loads.values(), key=lambda each: each.segment_id)),
            self.clocks,
            asked_by,
        )
        self._commit_at_ms = now_ms + self._durations.operation_ms
        self._observer.begun(self._operation)

    def _commit(self, now_ms: int) -> None:
        begun = self._operation
        assert begun is not None, "only a begun operation is committed"
        self._operation, self._commit_at_ms = None, 0
        self.epoch += 1
        for number in begun.action.segments:
            del self.segments[number]
            self.loads.pop(number, None)
            self._reported.discard(number)
        made = tuple(
            [
                child.numbered(self._next_id + place, self.epoch, now_ms)
                for place, child in enumerate(begun.children)
            ]
        )
        self._next_id += len(made)
        self.segments.update({each.segment_id: each for each in made})
        if self._has_loads:
            # As of the shards' state of loads, which begins with the first ones.
            self.clocks = clocks_after(self.clocks, begun.action.kind.value, now_ms)
        if not self._report_at_ms:
            self._report_at_ms = now_ms + self._durations.first_report_ms
        self._observer.committed(now_ms, begun, made)
