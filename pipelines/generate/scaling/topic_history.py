"""The whole history of one scalable topic, as the events that its shard would have written.

The layout follows ``pipelines.scaling``, so every operation is what the shards' decision gives.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from nextgen.client.wire.policies import pack_policies
from nextgen.kernel.governance.auto_scale_policy import (
    AUTO_SCALE_POLICY,
    DEFAULT_AUTO_SCALE,
    resolve,
)
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.scalable.auto_scale import group_sizes
from nextgen.kernel.scalable.buckets import buckets_of_new_topic
from nextgen.kernel.scalable.ranges import WHOLE_RANGE
from nextgen.kernel.scalable.segment_load import SegmentLoad
from nextgen.kernel.scalable.segments import Segment, SegmentEnd
from pipelines.generate.scaling.draws import ConsumerChange, TopicDraws
from pipelines.scaling.scaled_topic import AUTO_SCALE, Begun, Durations, ScaledTopic
from pipelines.scaling.traffic import Traffic

SUBSCRIPTION = "readers"

SEGMENTS_KEPT = 40
"""Sealed segments are pruned when the layout has more than these."""

_SUBSCRIBED_MS = 5

Told = tuple[int, str, str]
"""Time, event type, and payload as JSON."""


@dataclass(frozen=True, slots=True)
class TopicLife:
    """A topic of the inventory. Times are Unix times; ``deleted_ms`` is None if it lives on."""

    number: int
    name: str
    topic_id: str
    created_ms: int
    ends_ms: int
    deleted_ms: int | None


def history_of(seed: int, life: TopicLife) -> list[Told]:
    """Return the events of a topic. Those of one millisecond are in their order."""
    draws = TopicDraws(seed, life.number, life.created_ms, life.ends_ms)
    writer = _Writer(life)
    traffic = Traffic()
    for start, end, share in draws.cells():
        traffic.record(start, end, Rates(share, share, share, share))
    durations = Durations(operation_ms=draws.operation_ms)
    segments = writer.segments.values()
    topic = ScaledTopic(segments, traffic, DEFAULT_AUTO_SCALE, writer, durations)
    consumers: dict[str, bool] = {}
    for at_ms, happening in sorted(_happenings(draws), key=lambda each: each[0]):
        topic.run_until(at_ms)
        match happening:
            case Rates():
                traffic.record(WHOLE_RANGE.start, WHOLE_RANGE.end, happening)
                topic.note_traffic(at_ms, (WHOLE_RANGE,))
            case ConsumerChange():
                writer.tell_consumer(happening)
                if happening.joins:
                    consumers[happening.name] = True
                else:
                    consumers.pop(happening.name, None)
                topic.set_groups(at_ms, group_sizes([(True, consumers)]))
            case str():
                writer.tell_policy(at_ms, happening)
                topic.set_policy(at_ms, resolve(DEFAULT_AUTO_SCALE, happening))
    topic.run_until(life.ends_ms - 1)
    if life.deleted_ms is not None:
        writer.tell(life.deleted_ms, "scalable_topic_deleted", segments=[])
    return writer.told


def _happenings(draws: TopicDraws) -> Iterator[tuple[int, Rates | ConsumerChange | str]]:
    yield from draws.traffic()
    for change in draws.consumers():
        yield change.at_ms, change
    policy = draws.own_policy()
    if policy is not None:
        yield policy


class _Writer:
    """An ``Observer`` that writes events. ``segments`` has sealed ones too, by id."""

    def __init__(self, life: TopicLife) -> None:
        self.told: list[Told] = []
        self._life = life
        self._epoch = 0
        self._operation = 0
        self._next_id = 1
        self._policies = 0
        whole = Segment(
            segment_id=0,
            hash_start=WHOLE_RANGE.start,
            hash_end=WHOLE_RANGE.end,
            created_at_epoch=0,
            created_at_ms=life.created_ms,
            bucket_starts=buckets_of_new_topic(1),
        )
        self.segments: dict[int, Segment] = {0: whole}
        self.tell(life.created_ms, "scalable_topic_created", segments=[_segment(whole)])
        self.tell(
            *(life.created_ms, "scalable_subscription_created"),
            subscription=SUBSCRIPTION,
            type="stream",
            created_at_ms=life.created_ms,
        )
        ready_ms = life.created_ms + _SUBSCRIBED_MS
        self.tell(ready_ms, "scalable_subscription_ready", subscription=SUBSCRIPTION)

    def tell(self, at_ms: int, event_type: str, **fields: Any) -> None:
        """Write an event about the topic."""
        payload = {"name": self._life.name, "topic_id": self._life.topic_id, **fields}
        self.told.append((at_ms, event_type, json.dumps(payload)))

    def tell_consumer(self, change: ConsumerChange) -> None:
        fields: dict[str, Any] = {"subscription": SUBSCRIPTION, "consumer_name": change.name}
        if change.joins:
            self.tell(change.at_ms, "scalable_consumer_registered", takes_buckets=True, **fields)
        else:
            self.tell(change.at_ms, "scalable_consumer_left", reason="left", **fields)

    def tell_policy(self, at_ms: int, override: str) -> None:
        self._policies += 1
        packed = pack_policies(Policies(stored=((AUTO_SCALE_POLICY, override),)))
        payload = {
            "scope": "topic",
            "name": self._life.name,
            "policy": base64.b64encode(packed).decode(),
            "version": self._policies,
            "object_id": self._life.topic_id,
        }
        self.told.append((at_ms, "policy_set", json.dumps(payload)))

    # An ``Observer`` -----------------------------------------------------------------------------

    def recorded(self, at_ms: int, loads: Iterable[SegmentLoad]) -> None:
        in_order = sorted(loads, key=lambda each: each.segment_id)
        payload = {
            "topic": self._life.name,
            "topic_id": self._life.topic_id,
            "loads": list(map(asdict, in_order)),
        }
        self.told.append((at_ms, "segment_loads_recorded", json.dumps(payload)))

    def begun(self, begun: Begun) -> None:
        action, at_ms = begun.action, begun.decided_at_ms
        self._operation += 1
        children = [
            child.numbered(self._next_id + place, self._epoch + 1, at_ms)
            for place, child in enumerate(begun.children)
        ]
        self._next_id += len(children)
        of_operation: dict[str, Any] = {"operation_id": self._operation, "kind": action.kind.value}
        self.tell(
            *(at_ms, "layout_change_planned"),
            **of_operation,
            parents=list(action.segments),
            children=list(map(_segment, children)),
            asked_by=AUTO_SCALE,
            planned_at_ms=at_ms,
        )
        assert begun.policy is not None, "only a policy that makes sense is decided by"
        self.tell(
            *(at_ms, "auto_scale_decided"),
            **of_operation,
            segments=list(action.segments),
            buckets=action.buckets,
            reason=action.reason.value,
            evaluated_at_ms=at_ms,
            groups=asdict(begun.groups),
            policy=begun.policy.text,
            policies_version=self._policies,
            loads=list(map(asdict, begun.loads)),
            clocks=asdict(begun.clocks),
        )

    def committed(self, at_ms: int, begun: Begun, made: tuple[Segment, ...]) -> None:
        self._epoch += 1
        self.tell(at_ms, "segment_children_ready", operation_id=self._operation)
        changed = [replace(each, created_at_epoch=self._epoch) for each in made]
        for number in begun.action.segments:
            end = SegmentEnd(self._operation, 1_000)
            sealed = replace(
                self.segments[number],
                children=tuple([each.segment_id for each in made if number in each.parents]),
                is_sealed=True,
                sealed_at_epoch=self._epoch,
                sealed_at_ms=at_ms,
                end=end,
            )
            changed.append(sealed)
            self.tell(
                *(at_ms, "segment_sealed"),
                operation_id=self._operation,
                segment_id=number,
                end=asdict(end),
                stored_bytes=0,
            )
        self._tell_changed(at_ms, begun.action.kind.value, self._operation, changed)
        if len(self.segments) > SEGMENTS_KEPT + sum(
            not each.is_sealed for each in self.segments.values()
        ):
            self._prune(at_ms)

    # ---------------------------------------------------------------------------------------------

    def _tell_changed(
        self,
        at_ms: int,
        kind: str,
        operation: int,
        changed: Iterable[Segment],
        removed: Sequence[int] = (),
    ) -> None:
        by_id = {each.segment_id: each for each in changed}
        self.segments.update(by_id)
        for number in removed:
            del self.segments[number]
        self.tell(
            *(at_ms, "layout_changed"),
            epoch=self._epoch,
            kind=kind,
            operation_id=operation,
            changed=[_segment(by_id[each]) for each in sorted(by_id)],
            removed=list(removed),
        )

    def _prune(self, at_ms: int) -> None:
        """Remove the sealed segments that have no parents: everybody has drained them."""
        gone = [key for key, each in self.segments.items() if each.is_sealed and not each.parents]
        for number in gone:
            self.tell(at_ms, "segment_drained", subscription=SUBSCRIPTION, segment_id=number)
        left = set(gone)
        changed = [
            replace(
                each,
                parents=tuple([one for one in each.parents if one not in left]),
                children=tuple([one for one in each.children if one not in left]),
            )
            for key, each in self.segments.items()
            if key not in left and not left.isdisjoint((*each.parents, *each.children))
        ]
        self._epoch += 1
        self._tell_changed(at_ms, "prune", 0, changed, gone)
        for number in gone:
            self.tell(at_ms, "segment_storage_removed", segment_id=number)


def _segment(segment: Segment) -> Mapping[str, Any]:
    return asdict(segment)
