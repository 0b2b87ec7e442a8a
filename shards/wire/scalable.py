"""Scalable topics and their events, stored and in the domain: a part of ``wire.event``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from nextgen.client.wire.fields import REPEATED, Conversion, FieldMap
from nextgen.client.wire.layouts import SEGMENT, SEGMENT_END
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.scalable.auto_scale import ActionKind, GroupSizes, Reason, ScaleClocks
from nextgen.kernel.scalable.segment_load import SegmentLoad
from nextgen.kernel.scalable.segments import Segment, SegmentEnd
from protos.nextgen.v1 import events_pb2 as pb
from protos.nextgen.v1 import layouts_pb2 as layouts
from shards.domain.scalable import events, loads, state
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionPhase, SubscriptionType

_CONSUMER = FieldMap(
    events.ConsumerSegments,
    layouts.ConsumerSegments,
    converted={"segments": REPEATED, "shared": REPEATED},
)
_KIND: Conversion = (attrgetter("value"), ChangeKind)
_TYPE: Conversion = (attrgetter("value"), SubscriptionType)
_PHASE: Conversion = (attrgetter("value"), SubscriptionPhase)


def _to_sealed(sealed: Mapping[int, SegmentEnd]) -> list[layouts.SealedParent]:
    return [
        layouts.SealedParent(segment_id=segment_id, end=SEGMENT_END.to_stored(end))
        for segment_id, end in sealed.items()
    ]


def _from_sealed(stored: Iterable[layouts.SealedParent]) -> dict[int, SegmentEnd]:
    return {each.segment_id: SEGMENT_END.from_stored(each.end) for each in stored}


_OPERATION = FieldMap(
    state.LayoutOperation,
    layouts.LayoutOperation,
    converted={
        "kind": _KIND,
        "parents": REPEATED,
        "children": SEGMENT.each,
        "sealed": (_to_sealed, _from_sealed),
    },
)


def _to_consumers(consumers: Mapping[str, bool]) -> list[layouts.ScalableConsumer]:
    return [
        layouts.ScalableConsumer(name=name, takes_buckets=takes)
        for name, takes in consumers.items()
    ]


def _from_consumers(stored: Iterable[layouts.ScalableConsumer]) -> dict[str, bool]:
    return {each.name: each.takes_buckets for each in stored}


_SUBSCRIPTION = FieldMap(
    state.Subscription,
    layouts.ScalableSubscription,
    converted={
        "type": _TYPE,
        "phase": _PHASE,
        "consumers": (_to_consumers, _from_consumers),
        "drained": (sorted, frozenset),
        "assigned": _CONSUMER.each,
    },
)


def _to_segments(segments: Mapping[int, Segment]) -> list[layouts.TopicSegment]:
    return [SEGMENT.to_stored(each) for each in segments.values()]


def _from_segments(stored: Iterable[layouts.TopicSegment]) -> dict[int, Segment]:
    return {each.segment_id: SEGMENT.from_stored(each) for each in stored}


def _to_subscriptions(
    subscriptions: Mapping[str, state.Subscription],
) -> list[layouts.ScalableSubscription]:
    return [_SUBSCRIPTION.to_stored(each) for each in subscriptions.values()]


def _from_subscriptions(
    stored: Sequence[layouts.ScalableSubscription],
) -> dict[str, state.Subscription]:
    return {each.name: _SUBSCRIPTION.from_stored(each) for each in stored}


def _from_numbers(stored: Mapping[int, int]) -> dict[int, int]:
    return dict(sorted(stored.items()))


_TOPIC = FieldMap(
    state.ScalableTopic,
    layouts.ScalableTopic,
    converted={
        "segments": (_to_segments, _from_segments),
        "operation": _OPERATION.one,
        "removals": SEGMENT.each,
        "subscriptions": (_to_subscriptions, _from_subscriptions),
        "postponed": (dict, _from_numbers),
        "sealed_bytes": (dict, _from_numbers),
    },
    optional={"operation": None},
)

scalable_topic_message = _TOPIC.to_stored
scalable_topic_state = _TOPIC.from_stored


def pack_scalable_topic(topic: state.ScalableTopic) -> bytes:
    """Return a topic as its row has it: equal topics give equal bytes."""
    return _TOPIC.to_stored(topic).SerializeToString(deterministic=True)


def unpack_scalable_topic(packed: bytes) -> state.ScalableTopic:
    """Return the topic that ``pack_scalable_topic`` was given."""
    return _TOPIC.from_stored(layouts.ScalableTopic.FromString(packed))


# Loads -------------------------------------------------------------------------------------------

RATES = FieldMap(Rates, layouts.SegmentRates)
_LOAD = FieldMap(SegmentLoad, layouts.SegmentLoad, converted={"rates": RATES.one})
_CLOCKS = FieldMap(ScaleClocks, layouts.ScaleClocks)
_GROUPS = FieldMap(GroupSizes, layouts.GroupSizes)


def _to_loads(known: Mapping[int, SegmentLoad]) -> list[layouts.SegmentLoad]:
    return [_LOAD.to_stored(each) for each in known.values()]


def _from_loads(stored: Iterable[layouts.SegmentLoad]) -> dict[int, SegmentLoad]:
    return {each.segment_id: _LOAD.from_stored(each) for each in stored}


_TOPIC_LOADS = FieldMap(
    loads.TopicLoads,
    layouts.TopicLoads,
    converted={"loads": (_to_loads, _from_loads), "clocks": _CLOCKS.one},
)


topic_loads_message = _TOPIC_LOADS.to_stored
topic_loads_state = _TOPIC_LOADS.from_stored


def pack_topic_loads(state: loads.TopicLoads) -> bytes:
    """Return loads as their row has them: equal loads give equal bytes."""
    return _TOPIC_LOADS.to_stored(state).SerializeToString(deterministic=True)


def unpack_topic_loads(packed: bytes) -> loads.TopicLoads:
    """Return the loads that ``pack_topic_loads`` was given."""
    return _TOPIC_LOADS.from_stored(layouts.TopicLoads.FromString(packed))


# Events ------------------------------------------------------------------------------------------

_SUBSCRIPTION_TYPE = {"type": _TYPE}

SCALABLE_EVENTS: dict[str, FieldMap[Any, Any]] = {
    "scalable_topic_created": FieldMap(
        events.ScalableTopicCreated,
        pb.ScalableTopicCreated,
        converted={"segments": SEGMENT.each},
    ),
    "scalable_topic_restored": FieldMap(
        events.ScalableTopicRestored,
        pb.ScalableTopicRestored,
        converted={"segments": SEGMENT.each, "removals": SEGMENT.each},
    ),
    "scalable_topic_deleted": FieldMap(
        events.ScalableTopicDeleted, pb.ScalableTopicDeleted, converted={"segments": REPEATED}
    ),
    "layout_change_planned": FieldMap(
        events.LayoutChangePlanned,
        pb.LayoutChangePlanned,
        converted={"kind": _KIND, "parents": REPEATED, "children": SEGMENT.each},
    ),
    "segment_children_ready": FieldMap(events.SegmentChildrenReady, pb.SegmentChildrenReady),
    "segment_sealed": FieldMap(
        events.SegmentSealed, pb.SegmentSealed, converted={"end": SEGMENT_END.one}
    ),
    "layout_changed": FieldMap(
        events.LayoutChanged,
        pb.LayoutChanged,
        converted={"kind": _KIND, "changed": SEGMENT.each, "removed": REPEATED},
    ),
    "layout_change_abandoned": FieldMap(events.LayoutChangeAbandoned, pb.LayoutChangeAbandoned),
    "segment_prune_postponed": FieldMap(events.SegmentPrunePostponed, pb.SegmentPrunePostponed),
    "segment_storage_removed": FieldMap(events.SegmentStorageRemoved, pb.SegmentStorageRemoved),
    "segment_loads_recorded": FieldMap(
        events.SegmentLoadsRecorded,
        pb.SegmentLoadsRecorded,
        renamed={"name": "topic"},
        converted={"loads": _LOAD.each},
    ),
    "auto_scale_decided": FieldMap(
        events.AutoScaleDecided,
        pb.AutoScaleDecided,
        converted={
            "kind": (attrgetter("value"), ActionKind),
            "segments": REPEATED,
            "reason": (attrgetter("value"), Reason),
            "groups": _GROUPS.one,
            "loads": _LOAD.each,
            "clocks": _CLOCKS.one,
        },
    ),
    "scalable_subscription_created": FieldMap(
        events.ScalableSubscriptionCreated,
        pb.ScalableSubscriptionCreated,
        converted=_SUBSCRIPTION_TYPE,
    ),
    "scalable_subscription_sought": FieldMap(
        events.ScalableSubscriptionSought, pb.ScalableSubscriptionSought
    ),
    "scalable_subscription_ready": FieldMap(
        events.ScalableSubscriptionReady, pb.ScalableSubscriptionReady
    ),
    "scalable_subscription_deletion_started": FieldMap(
        events.ScalableSubscriptionDeletionStarted, pb.ScalableSubscriptionDeletionStarted
    ),
    "scalable_subscription_deleted": FieldMap(
        events.ScalableSubscriptionDeleted, pb.ScalableSubscriptionDeleted
    ),
    "segment_drained": FieldMap(events.SegmentDrained, pb.SegmentDrained),
    "scalable_consumer_registered": FieldMap(
        events.ScalableConsumerRegistered, pb.ScalableConsumerRegistered
    ),
    "scalable_consumer_left": FieldMap(events.ScalableConsumerLeft, pb.ScalableConsumerLeft),
    "segments_assigned": FieldMap(
        events.SegmentsAssigned, pb.SegmentsAssigned, converted={"assigned": _CONSUMER.each}
    ),
}
"""By the name of the payload."""
