"""The recorded loads of a scalable topic's segments, and when it was changed last.

A state of its own beside the topic: loads change with the traffic, and whoever watches the layout
need not hear of them. It begins with the first record. What an operation ends goes with the event
that commits it, as does the time that cool-downs count from: so a failed operation burns none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from nextgen.kernel.governance.auto_scale_policy import AutoScalePolicy
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.limits.scalable import SEGMENT_LOAD_CHANGE
from nextgen.kernel.scalable.auto_scale import NEVER_CHANGED, ScaleClocks
from nextgen.kernel.scalable.layout_operations import clocks_after
from nextgen.kernel.scalable.segment_load import SegmentLoad, newly_recorded
from shards.domain.scalable.events import LayoutChanged, ScalableTopicDeleted, SegmentLoadsRecorded
from shards.domain.scalable.state import ScalableTopic


@dataclass(frozen=True, slots=True)
class TopicLoads:
    """``loads`` are by the ids of segments, ascending."""

    topic_id: str
    loads: Mapping[int, SegmentLoad] = field(default_factory=dict)
    clocks: ScaleClocks = NEVER_CHANGED


LoadEvent = SegmentLoadsRecorded | LayoutChanged | ScalableTopicDeleted


def evolve(before: TopicLoads | None, event: LoadEvent) -> TopicLoads | None:
    """Return the loads of a topic as they are after ``event``."""
    match event:
        case SegmentLoadsRecorded():
            # A topic of the same name that was deleted may have left some.
            if before is None or before.topic_id != event.topic_id:
                before = TopicLoads(event.topic_id)
            loads = {**before.loads, **{each.segment_id: each for each in event.loads}}
            return replace(before, loads=dict(sorted(loads.items())))
        case LayoutChanged():
            # Nothing begins here: an earlier release, which keeps no loads, folds the same event.
            return None if before is None else _changed(before, event)
        case ScalableTopicDeleted():
            return None


def _changed(before: TopicLoads, event: LayoutChanged) -> TopicLoads:
    ended = {each.segment_id for each in event.changed if each.is_sealed}.union(event.removed)
    loads = {key: each for key, each in before.loads.items() if key not in ended}
    made = [each for each in event.changed if not each.is_sealed]
    made_at_ms = max([each.created_at_ms for each in made], default=0)
    clocks = clocks_after(before.clocks, event.kind.value, made_at_ms)
    return replace(before, loads=loads, clocks=clocks)


def record(
    topic: ScalableTopic,
    before: TopicLoads | None,
    samples: Mapping[int, Rates],
    policy: AutoScalePolicy,
    now_ms: int,
    leapt_at_ms: int = 0,
    *,
    change: float = SEGMENT_LOAD_CHANGE,
) -> SegmentLoadsRecorded | None:
    """Return what is to be recorded of ``samples``, by segment; None if nothing is.

    ``change`` is the part of a recorded rate by which it has to move. What else is recorded:
    ``newly_recorded``.
    """
    known = of_topic(topic, before).loads
    active = [each.segment_id for each in topic.active]
    loads = newly_recorded(active, known, samples, policy, now_ms, leapt_at_ms, change=change)
    if not loads:
        return None
    return SegmentLoadsRecorded(topic.name, topic.topic_id, _by_id(loads))


def of_topic(topic: ScalableTopic, loads: TopicLoads | None) -> TopicLoads:
    """Return the loads of ``topic``, none if those that are there are of another one."""
    if loads is None or loads.topic_id != topic.topic_id:
        return TopicLoads(topic.topic_id)
    return loads


def _by_id(loads: Iterable[SegmentLoad]) -> tuple[SegmentLoad, ...]:
    return tuple(sorted(loads, key=lambda each: each.segment_id))
