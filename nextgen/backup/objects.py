"""Objects of a backup: how events change them, and what an event means for the cut. Pure.

An object is an ``Item``; one that does not exist has no value. The rules are those of the shards'
views (``shards.domain``), on the messages that a snapshot is made of: what this fold does not know
stays in the message as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nextgen.backup.cut import Change, TailEvent, is_source
from nextgen.client.scalable_topics.fold import LAYOUT_EVENTS, fold_events
from nextgen.kernel.routing.shadows import shadow_source_of
from protos.nextgen.v1.events_pb2 import Event, TopicRenamed
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_SCALABLE_TOPIC,
    KIND_TENANT,
    KIND_TOPIC,
    LIFE_STATE_ACTIVE,
    LIFE_STATE_DELETING,
    Item,
    Kind,
)

KINDS = (KIND_TENANT, KIND_NAMESPACE, KIND_TOPIC, KIND_SCALABLE_TOPIC)
"""Parents before their children, topics before their layouts."""

KIND_NAMES = {
    KIND_TENANT: "tenants",
    KIND_NAMESPACE: "namespaces",
    KIND_TOPIC: "topics",
    KIND_SCALABLE_TOPIC: "scalable_topics",
}

Key = tuple[Kind, str]
"""The kind and name of an object."""

_SCOPES = {"tenant": KIND_TENANT, "namespace": KIND_NAMESPACE, "topic": KIND_TOPIC}
_FIELDS = {kind: scope for scope, kind in _SCOPES.items()} | {KIND_SCALABLE_TOPIC: "scalable_topic"}


def value_of(item: Item) -> Any:
    """Return the tenant, namespace, topic or layout of ``item``."""
    return getattr(item, _FIELDS[item.kind])


def parents_of(item: Item) -> Sequence[str]:
    """Return the parents that ``item`` needs: ids, and the name of a shadow's source.

    There is none for a tenant, and for a layout, which is in the shard of its topic and comes and
    goes with it.
    """
    if item.kind == KIND_TOPIC:
        source = shadow_source_of(item.topic.properties)
        return [each for each in (item.topic.namespace_id, source) if each]
    return [item.namespace.tenant_id] if item.kind == KIND_NAMESPACE else []


def id_as_parent(item: Item) -> str:
    """Return the id by which children name ``item``, "" for others."""
    if item.kind == KIND_TENANT:
        return item.tenant.tenant_id
    return item.namespace.namespace_id if item.kind == KIND_NAMESPACE else ""


def key_of(event: Event) -> Key | None:
    """Return the object of a backup that ``event`` changes, None if it changes none."""
    payload = event.WhichOneof("payload") or ""
    if payload in LAYOUT_EVENTS:
        return KIND_SCALABLE_TOPIC, getattr(event, payload).name
    if payload in ("policy_set", "policy_cleared"):
        scope: str | None = getattr(event, payload).scope
    else:
        scope = _SCOPE_OF.get(payload)
    return None if scope is None else (_SCOPES[scope], getattr(event, payload).name)


def keys_of(event: Event) -> Sequence[Key]:
    """Return all objects of a backup that ``event`` changes: of a rename both names."""
    if event.WhichOneof("payload") == "topic_renamed":
        renamed = event.topic_renamed
        return ((KIND_TOPIC, renamed.name), (KIND_TOPIC, renamed.new_name))
    key = key_of(event)
    return () if key is None else (key,)


def apply(item: Item, event: Event) -> None:
    """Change ``item``, of a key of ``event``, as the event says."""
    payload = event.WhichOneof("payload") or ""
    message = getattr(event, payload)
    if payload == "topic_renamed":
        _rename(item, message)
    elif item.kind == KIND_SCALABLE_TOPIC:
        _apply_to_layout(item, event)
    elif payload.endswith("_created"):
        _create(item, message, event.time_ms)
    elif payload.endswith("_deleted"):
        item.ClearField(_FIELDS[item.kind])
    else:
        value = value_of(item)
        value.version += 1
        _CHANGES[payload.partition("_")[2]](value, message)


def _apply_to_layout(item: Item, event: Event) -> None:
    before = item.scalable_topic if item.HasField("scalable_topic") else None
    after = fold_events(before, [event])
    item.ClearField("scalable_topic")
    if after is not None:
        item.scalable_topic.CopyFrom(after)


def forget_consumers(item: Item) -> None:
    """Take out of a layout who consumes: their connections end with the cluster."""
    if item.HasField("scalable_topic"):
        for subscription in item.scalable_topic.subscriptions:
            del subscription.consumers[:]
            del subscription.assigned[:]


def _create(item: Item, created: Any, time_ms: int) -> None:
    item.ClearField(_FIELDS[item.kind])
    value = value_of(item)
    value.name, value.version = created.name, 1
    for name, text in created.properties.items():
        value.properties[name] = text
    if item.kind == KIND_TENANT:
        value.tenant_id = created.tenant_id
    elif item.kind == KIND_NAMESPACE:
        value.namespace_id, value.tenant_id = created.namespace_id, created.tenant_id
    else:
        value.topic_id, value.namespace_id = created.topic_id, created.namespace_id
        value.partitions, value.created_time_ms = created.partitions, time_ms


def _rename(item: Item, renamed: TopicRenamed) -> None:
    item.ClearField("topic")
    if item.name != renamed.new_name:
        return
    topic = item.topic
    topic.topic_id, topic.name = renamed.topic_id, renamed.new_name
    topic.namespace_id, topic.partitions = renamed.namespace_id, renamed.partitions
    topic.version, topic.created_time_ms = renamed.version, renamed.created_time_ms
    for name, text in renamed.properties.items():
        topic.properties[name] = text
    if renamed.policies:
        topic.policies.ParseFromString(renamed.policies)
    topic.policies_version = renamed.policies_version
    topic.former_names.extend(renamed.former_names)


def _set_properties(value: Any, change: Any) -> None:
    value.properties.clear()
    for name, text in change.properties.items():
        value.properties[name] = text


def _set_policies(value: Any, change: Any) -> None:
    value.ClearField("policies")
    if packed := getattr(change, "policy", b""):
        value.policies.ParseFromString(packed)
    value.policies_version = change.version


def _start_deletion(value: Any, _: Any) -> None:
    value.state = LIFE_STATE_DELETING


def _abort_deletion(value: Any, _: Any) -> None:
    value.state = LIFE_STATE_ACTIVE


def _grow(value: Any, change: Any) -> None:
    value.partitions = change.partitions


_CHANGES: Mapping[str, Callable[[Any, Any], None]] = {
    "properties_set": _set_properties,
    "set": _set_policies,
    "cleared": _set_policies,
    "deletion_started": _start_deletion,
    "deletion_aborted": _abort_deletion,
    "partitions_grown": _grow,
}
"""By the payload behind its first word."""

_SCOPE_OF = {
    f"{scope}_{change}": scope
    for scope in _SCOPES
    for change in ("created", "deleted", *_CHANGES)
    if f"{scope}_{change}" in Event.DESCRIPTOR.fields_by_name
}

EVENT_TYPES = (
    *_SCOPE_OF,
    *LAYOUT_EVENTS,
    "topic_renamed",
    "policy_set",
    "policy_cleared",
    "parent_gate_closed",
)
"""Payloads that a backup reads behind a snapshot."""


def tail_of(events: Sequence[Event]) -> list[TailEvent]:
    """Return what ``events`` mean for the cut."""
    return [
        TailEvent(event.position, (event.time_ms, event.causation_id), tuple(_changes(event)))
        for event in events
    ]


def _changes(event: Event) -> Iterator[tuple[Change, str]]:
    payload = event.WhichOneof("payload")
    if payload == "tenant_created":
        yield Change.BORN, event.tenant_created.tenant_id
    elif payload == "namespace_created":
        yield Change.BORN, event.namespace_created.namespace_id
        yield Change.NEEDED, event.namespace_created.tenant_id
    elif payload == "topic_created":
        yield Change.BORN, event.topic_created.name
        yield Change.NEEDED, event.topic_created.namespace_id
        if source := shadow_source_of(event.topic_created.properties):
            yield Change.NEEDED, source
    elif payload == "topic_renamed":
        yield Change.NEEDED, event.topic_renamed.namespace_id
    elif payload == "tenant_deleted":
        yield Change.GONE, event.tenant_deleted.tenant_id
    elif payload == "namespace_deleted":
        yield Change.GONE, event.namespace_deleted.namespace_id
    elif payload == "topic_deleted":
        yield Change.GONE, event.topic_deleted.name
    elif payload == "parent_gate_closed":
        closed = event.parent_gate_closed
        yield (
            Change.CLOSED,
            closed.parent_name if is_source(closed.parent_name) else closed.parent_id,
        )
