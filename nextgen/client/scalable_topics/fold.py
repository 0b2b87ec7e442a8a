"""The fold of a scalable topic's events into its message, as the shards fold them.

It knows no rule: events have the segments as they are afterwards (ADR 0104).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.layouts_pb2 import (
    LayoutOperation,
    ScalableSubscription,
    ScalableTopic,
)


def fold_events(topic: ScalableTopic | None, events: Iterable[Event]) -> ScalableTopic | None:
    """Return ``topic`` as it is after ``events``, which are about it; None: there is no such topic.

    ``topic`` itself is not changed. An event of a later release changes the version alone.
    """
    after = topic
    for event in events:
        payload = event.WhichOneof("payload") or ""
        if payload == "scalable_topic_created":
            after = _created(event.scalable_topic_created)
        elif payload == "scalable_topic_restored":
            after = _restored(event.scalable_topic_restored)
        elif payload == "scalable_topic_deleted":
            after = None
        elif after is not None:
            if after is topic:
                # Once for all events: a topic at its limits has two hundred kilobytes, and a change
                # of its segments an event for each subscription.
                after = ScalableTopic()
                after.CopyFrom(topic)
            after.version += 1
            fold = _FOLDS.get(payload)
            if fold is not None:
                fold(after, getattr(event, payload))
    return after


def _restored(change: Any) -> ScalableTopic:
    return ScalableTopic(
        topic_id=change.topic_id,
        name=change.name,
        epoch=change.epoch,
        next_segment_id=change.next_segment_id,
        version=1,
        segments=change.segments,
        last_operation_id=change.last_operation_id,
        removals=change.removals,
    )


def _created(change: Any) -> ScalableTopic:
    return ScalableTopic(
        topic_id=change.topic_id,
        name=change.name,
        next_segment_id=len(change.segments),
        version=1,
        segments=change.segments,
    )


def _planned(topic: ScalableTopic, change: Any) -> None:
    topic.operation.CopyFrom(
        LayoutOperation(
            operation_id=change.operation_id,
            kind=change.kind,
            parents=change.parents,
            children=change.children,
            asked_by=change.asked_by,
            planned_at_ms=change.planned_at_ms,
        )
    )
    topic.last_operation_id = change.operation_id
    ends = [each.segment_id + 1 for each in change.children]
    topic.next_segment_id = max([topic.next_segment_id, *ends])


def _children_ready(topic: ScalableTopic, _: Any) -> None:
    topic.operation.are_children_ready = True


def _sealed(topic: ScalableTopic, change: Any) -> None:
    topic.operation.sealed.add(segment_id=change.segment_id, end=change.end)
    if change.stored_bytes:
        topic.sealed_bytes[change.segment_id] = change.stored_bytes


def _changed(topic: ScalableTopic, change: Any) -> None:
    segments = {each.segment_id: each for each in topic.segments}
    segments.update({each.segment_id: each for each in change.changed})
    gone = [segments.pop(each) for each in change.removed if each in segments]
    # Made before the list is emptied: its elements live in it.
    made = ScalableTopic(
        segments=[segments[each] for each in sorted(segments)],
        removals=[*topic.removals, *gone],
    )
    del topic.segments[:]
    del topic.removals[:]
    topic.MergeFrom(made)
    topic.epoch = change.epoch
    if change.operation_id:
        topic.ClearField("operation")
    if gone:
        for subscription in topic.subscriptions:
            left = [each for each in subscription.drained if each not in change.removed]
            subscription.drained[:] = left
        for segment_id in change.removed:
            topic.postponed.pop(segment_id, None)
            topic.sealed_bytes.pop(segment_id, None)


def _abandoned(topic: ScalableTopic, _: Any) -> None:
    topic.removals.extend(topic.operation.children)
    topic.ClearField("operation")


def _prune_postponed(topic: ScalableTopic, change: Any) -> None:
    topic.postponed[change.segment_id] = change.until_ms


def _storage_removed(topic: ScalableTopic, change: Any) -> None:
    for place, each in enumerate(topic.removals):
        if each.segment_id == change.segment_id:
            del topic.removals[place]
            return


def _subscription_created(topic: ScalableTopic, change: Any) -> None:
    topic.subscriptions.append(
        ScalableSubscription(
            name=change.subscription,
            type=change.type,
            phase="live" if change.type == "checkpoint" else "creating",
            created_at_ms=change.created_at_ms,
        )
    )
    topic.subscriptions.sort(key=lambda each: each.name)


def _subscription_deleted(topic: ScalableTopic, change: Any) -> None:
    for place, each in enumerate(topic.subscriptions):
        if each.name == change.subscription:
            del topic.subscriptions[place]
            return


def _on_subscription(
    fold: Callable[[ScalableSubscription, Any], None],
) -> Callable[[ScalableTopic, Any], None]:
    def apply(topic: ScalableTopic, change: Any) -> None:
        for each in topic.subscriptions:
            if each.name == change.subscription:
                fold(each, change)

    return apply


def _sought(subscription: ScalableSubscription, change: Any) -> None:
    subscription.phase = "seeking"
    subscription.seek_to_ms = change.seek_to_ms
    subscription.skips_all = change.skips_all
    del subscription.drained[:]


def _ready(subscription: ScalableSubscription, _: Any) -> None:
    subscription.phase = "live"
    subscription.ClearField("seek_to_ms")
    subscription.ClearField("skips_all")


def _deletion_started(subscription: ScalableSubscription, _: Any) -> None:
    subscription.phase = "deleting"
    del subscription.consumers[:]
    del subscription.assigned[:]


def _drained(subscription: ScalableSubscription, change: Any) -> None:
    subscription.drained[:] = sorted({*subscription.drained, change.segment_id})


def _registered(subscription: ScalableSubscription, change: Any) -> None:
    _left(subscription, change)
    subscription.consumers.add(name=change.consumer_name, takes_buckets=change.takes_buckets)
    subscription.consumers.sort(key=lambda each: each.name)


def _left(subscription: ScalableSubscription, change: Any) -> None:
    for place, each in enumerate(subscription.consumers):
        if each.name == change.consumer_name:
            del subscription.consumers[place]
            return


def _assigned(subscription: ScalableSubscription, change: Any) -> None:
    del subscription.assigned[:]
    subscription.assigned.extend(change.assigned)


def _explained(_topic: ScalableTopic, _: Any) -> None:
    """Change nothing: it says why an operation was begun."""


_FOLDS: dict[str, Callable[[ScalableTopic, Any], None]] = {
    "layout_change_planned": _planned,
    "auto_scale_decided": _explained,
    "segment_children_ready": _children_ready,
    "segment_sealed": _sealed,
    "layout_changed": _changed,
    "layout_change_abandoned": _abandoned,
    "segment_prune_postponed": _prune_postponed,
    "segment_storage_removed": _storage_removed,
    "scalable_subscription_created": _subscription_created,
    "scalable_subscription_deleted": _subscription_deleted,
    "scalable_subscription_sought": _on_subscription(_sought),
    "scalable_subscription_ready": _on_subscription(_ready),
    "scalable_subscription_deletion_started": _on_subscription(_deletion_started),
    "segment_drained": _on_subscription(_drained),
    "scalable_consumer_registered": _on_subscription(_registered),
    "scalable_consumer_left": _on_subscription(_left),
    "segments_assigned": _on_subscription(_assigned),
}
"""By the name of the payload."""

LAYOUT_EVENTS = frozenset(
    {
        "scalable_topic_created",
        "scalable_topic_restored",
        "scalable_topic_deleted",
        *_FOLDS,
    }
)
"""The payloads of all events about a scalable topic."""
