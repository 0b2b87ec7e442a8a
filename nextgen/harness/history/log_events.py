"""Converts events of a log to records of a history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict

from nextgen.harness.history.log_fold import POLICY_EVENTS, POLICY_SET, RENAMED
from nextgen.harness.history.model import NO_VALUE, LogEvent, Observation
from protos.nextgen.v1.events_pb2 import Event, LayoutChanged, LayoutChangePlanned
from protos.nextgen.v1.layouts_pb2 import TopicSegment
from protos.nextgen.v1.policies_pb2 import Policies

_ID_FIELDS = ("tenant_id", "namespace_id", "topic_id", "parent_id", "object_id")
_NAME_FIELDS = ("name", "broker_id", "parent_name", "node_id")
_TEXT_FIELDS = ("unit", "broker_id", "session_id", "reason")


def log_event_of(event: Event) -> LogEvent:
    """Return ``event``, as ReadEvents gives it, for a history."""
    kind = event.WhichOneof("payload") or ""
    payload: Any = getattr(event, kind) if kind else None
    known = payload.DESCRIPTOR.fields_by_name if payload is not None else {}
    texts: dict[str, Any] = {
        name: getattr(payload, name) if name in known else "" for name in _TEXT_FIELDS
    }
    return LogEvent(
        shard=event.shard_id,
        position=event.position,
        term=event.term,
        type=kind,
        key=key_of(event),
        # An event about a namespace names its tenant's id too: the object's own goes first.
        id=_object_id(kind, payload),
        epoch=payload.epoch if "epoch" in known else 0,
        used_epoch=payload.used_epoch if "used_epoch" in known else 0,
        causation_id=event.causation_id.hex(),
        properties=dict(payload.properties) if "properties" in known else {},
        policies=_policies_of(kind, payload),
        policies_version=_policies_version_of(kind, payload),
        facts=topic_facts(kind, payload) or scalable_facts(kind, payload),
        **texts,
    )


def topic_facts(kind: str, payload: Any) -> Mapping[str, object]:
    """Return what a rename says, or an event by which slots came from another shard, as values of
    JSON; empty for other events."""
    match kind:
        case "topic_renamed":
            return {"new_name": payload.new_name, "version": payload.version}
        case "slots_adopted" if payload.move_id:
            return {
                "move": payload.move_id,
                "came": [[each.first, each.last] for each in payload.came],
                "from_shard": payload.from_shard,
                "from_position": payload.from_position,
            }
        case _:
            return NO_VALUE


def scalable_facts(kind: str, payload: Any) -> Mapping[str, object]:
    """Return what an event about a scalable topic says, as values of JSON; empty for other events.

    ``segments`` are those that are new or differ, as they are afterwards.
    """
    match kind:
        case "scalable_topic_created" | "scalable_topic_restored":
            return {"segments": [*map(_segment, payload.segments)], "removed": []}
        case "layout_change_planned" | "layout_change_abandoned" | "layout_changed":
            return _change_facts(payload)
        case "scalable_subscription_created":
            return {"subscription": payload.subscription, "type": payload.type}
        case (
            "scalable_subscription_sought"
            | "scalable_subscription_deletion_started"
            | "scalable_subscription_deleted"
        ):
            return {"subscription": payload.subscription}
        case "segment_drained":
            return {"subscription": payload.subscription, "segment": payload.segment_id}
        case "scalable_consumer_registered" | "scalable_consumer_left":
            facts = {"subscription": payload.subscription, "consumer": payload.consumer_name}
            if kind == "scalable_consumer_left":
                return facts
            return {**facts, "takes_buckets": payload.takes_buckets}
        case "segments_assigned":
            return {
                "subscription": payload.subscription,
                "assigned": {each.consumer_name: [*each.segments] for each in payload.assigned},
                "shared": sorted({one for each in payload.assigned for one in each.shared}),
            }
        case _:
            return NO_VALUE


def _change_facts(payload: Any) -> Mapping[str, object]:
    facts: dict[str, object] = {"operation": payload.operation_id}
    match payload:
        case LayoutChangePlanned():
            facts["asked_by"] = payload.asked_by
        case LayoutChanged():
            facts["segments"] = [*map(_segment, payload.changed)]
            facts["removed"] = [*payload.removed]
    return facts


def _segment(segment: TopicSegment) -> Mapping[str, object]:
    return {
        "id": segment.segment_id,
        "start": segment.hash_start,
        "end": segment.hash_end,
        "sealed": segment.is_sealed,
        "parents": [*segment.parents],
        "buckets": len(segment.bucket_starts) + 1,
    }


def _policies_of(kind: str, payload: Any) -> str:
    """Return all policies of an object behind an event that says them, "" if it does not."""
    if kind not in (POLICY_SET, RENAMED):
        return ""
    packed = payload.policy if kind == POLICY_SET else payload.policies
    return policies_text(Policies.FromString(packed))


def _policies_version_of(kind: str, payload: Any) -> int:
    if kind == RENAMED:
        return int(payload.policies_version)
    return int(payload.version) if kind in POLICY_EVENTS else 0


def policies_text(policies: Policies) -> str:
    """Return the fields of ``policies`` as a text that can be compared, "" if none is set.

    Fields that this release does not know are not in it.
    """
    said = MessageToDict(policies, preserving_proto_field_name=True)
    return json.dumps(said, sort_keys=True, separators=(",", ":")) if said else ""


def observation_of(event: Event, *, watcher: str, shard: int, watch: int) -> Observation:
    """Return ``event``, as Watch sent it, for a history."""
    kind = event.WhichOneof("payload") or ""
    payload: Any = getattr(event, kind) if kind else None
    has_epoch = payload is not None and "epoch" in payload.DESCRIPTOR.fields_by_name
    return Observation(
        watcher,
        shard,
        watch,
        event.position,
        kind,
        key_of(event),
        payload.epoch if has_epoch else 0,
    )


def key_of(event: Event) -> str:
    """Return the name that ``event`` is about, "" if it is about none."""
    kind = event.WhichOneof("payload")
    if kind is None:
        return ""
    payload = getattr(event, kind)
    known = payload.DESCRIPTOR.fields_by_name
    name = next((field for field in _NAME_FIELDS if field in known), "")
    return str(getattr(payload, name)) if name else ""


def _object_id(kind: str, payload: Any) -> str:
    known = payload.DESCRIPTOR.fields_by_name if payload is not None else {}
    own = f"{kind.partition('_')[0]}_id"
    for name in (own, *_ID_FIELDS):
        if name in known and name != "broker_id":
            return str(getattr(payload, name))
    return ""
