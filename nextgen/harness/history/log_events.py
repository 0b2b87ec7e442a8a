"""Converts events of a log to records of a history."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.json_format import MessageToDict

from nextgen.harness.history.log_fold import POLICY_EVENTS
from nextgen.harness.history.model import LogEvent, Observation
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.policies_pb2 import Policies

_ID_FIELDS = ("tenant_id", "namespace_id", "topic_id", "parent_id", "object_id")
_NAME_FIELDS = ("name", "broker_id", "parent_name", "node_id")
_TEXT_FIELDS = ("unit", "broker_id", "session_id", "reason")


def log_event_of(event: Event) -> LogEvent:
    """Return ``event``, as ReadEvents gives it, for a history."""
    kind = event.WhichOneof("payload") or ""
    payload: Any = getattr(event, kind) if kind else None
    known = payload.DESCRIPTOR.fields_by_name if payload is not None else {}
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
        policies=policies_text(Policies.FromString(payload.policy)) if "policy" in known else "",
        policies_version=payload.version if kind in POLICY_EVENTS else 0,
        **{name: getattr(payload, name) if name in known else "" for name in _TEXT_FIELDS},
    )


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
