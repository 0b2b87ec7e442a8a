"""Layouts of scalable topics as Pulsar's tools read them: JSON with Pulsar's names."""

from __future__ import annotations

from typing import Any

from discovery.adapters.rest.long_json import Texts, json_text, map_texts, object_texts
from protos.nextgen.v1.inventory_pb2 import Topic
from protos.nextgen.v1.layouts_pb2 import ScalableTopic, TopicSegment

Content = dict[str, Any]

_NEVER = -1
"""Epoch and time at which an active segment was sealed."""


def metadata_texts(topic: Topic, layout: ScalableTopic, auto_scale: Any) -> Texts:
    """Yield ``ScalableTopicMetadata`` of the admin libraries."""
    return object_texts(
        {
            "epoch": layout.epoch,
            "nextSegmentId": layout.next_segment_id,
            "properties": dict(sorted(topic.properties.items())),
            "autoScalePolicy": auto_scale,
        },
        segments=map_texts(
            (str(each.segment_id), iter([json_text(_segment(each))])) for each in layout.segments
        ),
    )


def _segment(segment: TopicSegment) -> Content:
    return {
        "segmentId": segment.segment_id,
        **relatives(segment),
        "createdAtEpoch": segment.created_at_epoch,
        "sealedAtEpoch": segment.sealed_at_epoch if segment.is_sealed else _NEVER,
        "legacyTopicName": segment.legacy_topic_name or None,
        "entryBucketSplits": list(segment.bucket_starts),
    }


def relatives(segment: TopicSegment) -> Content:
    """Return what a layout and statistics say of a segment alike."""
    return {
        "hashRange": {"start": segment.hash_start, "end": segment.hash_end},
        "state": "SEALED" if segment.is_sealed else "ACTIVE",
        "parentIds": list(segment.parents),
        "childIds": list(segment.children),
        "createdAtMs": segment.created_at_ms,
        "sealedAtMs": segment.sealed_at_ms if segment.is_sealed else _NEVER,
    }
