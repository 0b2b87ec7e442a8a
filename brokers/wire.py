"""Conversion between protobuf messages and the broker's domain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from types import MappingProxyType
from typing import Any, cast

from google.protobuf.message import DecodeError

from brokers.domain.former_names import OldName
from brokers.domain.holding import (
    Assignment,
    Holding,
    MetadataKind,
    MetadataRemoved,
    Moving,
    NamespaceMetadata,
    Payload,
    Prepare,
    Release,
    TenantMetadata,
    TopicMetadata,
    UnknownStep,
)
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.schemas.schema import Schema
from brokers.domain.session import Delivered, Delivery, Established
from brokers.ports.session import (
    DrainedSettled,
    DrainedUnit,
    FromManager,
    Greeting,
    HeartbeatEcho,
    LoadsRecorded,
    SegmentTraffic,
    StreamEnded,
    Timing,
    TurnedAway,
)
from nextgen.client.wire.fields import PROPERTIES, FieldMap
from nextgen.client.wire.policies import policies_from_proto, policies_to_proto
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.limits.pulsar import SCHEMA_BYTES_MAX
from nextgen.kernel.limits.stream import HELD_BYTES_PER_MESSAGE_MAX, HELD_OBJECTS_PER_MESSAGE_MAX
from nextgen.kernel.routing.names import InvalidName, parse_topic
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.nextgen.v1 import (
    events_pb2,
    inventory_pb2,
    layouts_pb2,
    policies_pb2,
    shard_service_pb2,
)
from protos.pulsar import PulsarApi_pb2 as pulsar

_KINDS = MappingProxyType(
    {
        inventory_pb2.KIND_TENANT: MetadataKind.TENANT,
        inventory_pb2.KIND_NAMESPACE: MetadataKind.NAMESPACE,
        inventory_pb2.KIND_TOPIC: MetadataKind.TOPIC,
    }
)


_TRAFFIC = FieldMap(
    SegmentTraffic,
    wire.SegmentLoadReport,
    converted={"rates": FieldMap(Rates, layouts_pb2.SegmentRates).one},
)
segment_traffic_to_proto = _TRAFFIC.to_stored


def from_manager(message: wire.ManagerMessage, now_ms: int) -> FromManager:
    """Convert a broker manager's message. An unknown message ends the stream."""
    match message.WhichOneof("body"):
        case "deliveries":
            deliveries = [_delivery(delivery) for delivery in message.deliveries.deliveries]
            return Delivered(deliveries, now_ms)
        case "heartbeat_ack":
            ack = message.heartbeat_ack
            return HeartbeatEcho(ack.sent_at_ms, ack.load_refused)
        case "established":
            said = message.established
            return Greeting(
                Established(said.session_id, said.epoch, said.resumed, said.next_sequence),
                Timing(session_ttl_ms=said.session_ttl_ms, heartbeat_ms=said.heartbeat_ms),
                wants_held=said.report_held,
                takes_drained=said.takes_drained,
                takes_loads=said.takes_loads,
            )
        case "drained_settled":
            return DrainedSettled([_drained(unit) for unit in message.drained_settled.units])
        case "loads_recorded":
            return LoadsRecorded(
                [_TRAFFIC.from_stored(each) for each in message.loads_recorded.segments]
            )
        case "error":
            said_no = message.error
            return TurnedAway(said_no.reason, said_no.message, said_no.leader_hint)
    return StreamEnded("the broker manager sent a message that this version does not know")


def drained_to_proto(drained: DrainedUnit) -> wire.DrainedUnit:
    """Return a drained unit as it is reported."""
    return wire.DrainedUnit(
        topic_id=drained.topic_id,
        unit=drained.unit,
        name=drained.name,
        epoch=drained.epoch,
        subscription=drained.subscription,
    )


def _drained(unit: wire.DrainedUnit) -> DrainedUnit:
    return DrainedUnit(unit.topic_id, unit.unit, unit.name, unit.epoch, unit.subscription)


def _delivery(delivery: wire.Delivery) -> Delivery:
    return Delivery(delivery.sequence, _payload(delivery))


def _payload(delivery: wire.Delivery) -> Payload:
    match delivery.WhichOneof("body"):
        case "assign":
            return _ASSIGNMENT.from_stored(delivery.assign)
        case "release":
            return _RELEASE.from_stored(delivery.release)
        case "prepare":
            return Prepare(_ASSIGNMENT.from_stored(delivery.prepare))
        case "moving":
            return Moving(_RELEASE.from_stored(delivery.moving))
        case "tenant":
            return _TENANT.from_stored(delivery.tenant)
        case "namespace":
            return _NAMESPACE.from_stored(delivery.namespace)
        case "topic":
            return _TOPIC.from_stored(delivery.topic)
        case "removed":
            return _removed(delivery.removed)
    # A later manager knows that an earlier broker ignores the step. It only counts in the sequence.
    return UnknownStep()


def _policies_message(policies: Policies) -> policies_pb2.Policies | None:
    return None if policies == NO_POLICIES else policies_to_proto(policies)


_METADATA: dict[str, Any] = {
    "converted": {"properties": PROPERTIES, "policies": (_policies_message, policies_from_proto)},
    "optional": {"policies": NO_POLICIES},
}
_TENANT = FieldMap(TenantMetadata, inventory_pb2.Tenant, **_METADATA)
_NAMESPACE = FieldMap(NamespaceMetadata, inventory_pb2.Namespace, **_METADATA)
_FORMER_NAMES = FieldMap(OldName, events_pb2.OldName)
_METADATA_OF_TOPIC = {
    **_METADATA,
    "converted": {**_METADATA["converted"], "former_names": _FORMER_NAMES.each},
}
_TOPIC = FieldMap(TopicMetadata, inventory_pb2.Topic, **_METADATA_OF_TOPIC)
_ASSIGNMENT = FieldMap(
    Assignment, shard_service_pb2.TopicAssignment, converted={"topic": _TOPIC.one}
)
_RELEASE = FieldMap(Release, shard_service_pb2.TopicRelease)


def _removed(given: wire.MetadataRemoved) -> Payload:
    kind = _KINDS.get(given.kind)
    return UnknownStep() if kind is None else MetadataRemoved(kind, given.name, given.id)


def held_pages(holding: Holding) -> Iterator[wire.HeldMetadata]:
    """Yield the holding in messages of bounded size; the last one is marked.

    Changes during the iteration may be included or not.
    """
    page, size_bytes = wire.HeldMetadata(), 0
    for held in _held_objects(holding):
        held_bytes = held.ByteSize()
        if len(page.objects) == HELD_OBJECTS_PER_MESSAGE_MAX or (
            page.objects and size_bytes + held_bytes > HELD_BYTES_PER_MESSAGE_MAX
        ):
            yield page
            page, size_bytes = wire.HeldMetadata(), 0
        page.objects.append(held)
        size_bytes += held_bytes
    page.complete = True
    yield page


def _held_objects(holding: Holding) -> Iterator[wire.HeldObject]:
    for tenant in tuple(holding.tenants.values()):
        yield wire.HeldObject(
            kind=inventory_pb2.KIND_TENANT,
            name=tenant.name,
            id=tenant.tenant_id,
            version=tenant.version,
        )
    for namespace in tuple(holding.namespaces.values()):
        yield wire.HeldObject(
            kind=inventory_pb2.KIND_NAMESPACE,
            name=namespace.name,
            id=namespace.namespace_id,
            version=namespace.version,
        )
    # Units of deleted topics count as held until they are released.
    gone = {
        each.topic.topic_id: each.topic
        for each in holding.assignments.values()
        if each.topic.topic_id not in holding.topics
    }
    for topic in (*holding.topics.values(), *gone.values()):
        yield wire.HeldObject(
            kind=inventory_pb2.KIND_TOPIC,
            name=topic.name,
            id=topic.topic_id,
            version=topic.version,
            units=[
                wire.HeldUnit(unit=unit, epoch=epoch)
                for unit, epoch in holding.units(topic.topic_id).items()
            ],
        )


def held_item(holding: Holding, kind: inventory_pb2.Kind, name: str) -> inventory_pb2.Item:
    """Return a held object; without a value if it is not held."""
    item = inventory_pb2.Item(kind=kind, name=name)
    match _KINDS.get(kind):
        case MetadataKind.TENANT:
            tenant = holding.tenants.get(name)
            if tenant is not None:
                item.tenant.CopyFrom(_TENANT.to_stored(tenant))
        case MetadataKind.NAMESPACE:
            namespace = holding.namespaces.get(name)
            if namespace is not None:
                item.namespace.CopyFrom(_NAMESPACE.to_stored(namespace))
        case MetadataKind.TOPIC:
            topic = holding.topic(name)
            if topic is not None:
                item.topic.CopyFrom(_TOPIC.to_stored(topic))
    return item


def serving(holding: Holding, name: str, now_ms: int, unix_ms: int) -> wire.Serving:
    """Return the answer for one name in any spelling; the canonical one is the fast path.

    ``now_ms`` is by the clock of the holding's steps, ``unix_ms`` decides on former names.
    """
    held = holding.assigned(name)
    if held is not None:
        return _served(holding, name, held)
    try:
        parsed = parse_topic(name)
    except InvalidName:
        return wire.Serving(topic=name)
    held = holding.held(parsed, unix_ms)
    if held is not None:
        return _served(holding, parsed.text, held)
    return _released(holding, parsed.text, now_ms) or wire.Serving(topic=parsed.text)


def _served(holding: Holding, name: str, held: Assignment) -> wire.Serving:
    return wire.Serving(
        topic=name,
        serves=True,
        epoch=held.epoch,
        topic_id=held.topic.topic_id,
        has_metadata=holding.has_metadata(held),
    )


def _released(holding: Holding, name: str, now_ms: int) -> wire.Serving | None:
    released = holding.released(name, now_ms)
    if released is None:
        return None
    return wire.Serving(
        topic=name,
        epoch=released.epoch,
        topic_id=released.topic_id,
        new_broker_id=released.new_broker_id,
        new_epoch=released.new_epoch,
        new_broker_grpc=released.new_broker_grpc,
    )


def schema_of_message(message: pulsar.Schema) -> Schema:
    """Return the schema in a message, whatever its size."""
    return Schema(
        message.name,
        int(message.type),
        message.schema_data,
        _properties(message),
    )


def stated_schema(message: pulsar.Schema) -> Schema:
    """Return the schema that a client sent.

    Raises:
        Refusal: It is larger than a stored schema may be.
    """
    size = message.ByteSize()
    if size > SCHEMA_BYTES_MAX:
        raise Refusal(
            ServerError.INCOMPATIBLE_SCHEMA,
            f"a schema has at most {SCHEMA_BYTES_MAX} bytes, this one {size}",
        )
    return schema_of_message(message)


def stored_schema(schema: Schema) -> bytes:
    """Return the form of a version in a ledger's state, which is the protocol's."""
    message = pulsar.Schema(name=schema.name, schema_data=schema.data)
    message.type = cast("pulsar.Schema.Type", schema.kind)
    for key in sorted(schema.properties):
        cast(Any, message).properties.add(key=key, value=schema.properties[key])
    return message.SerializeToString()


def schema_of_stored(stored: bytes) -> Schema:
    """Decode the result of ``stored_schema``.

    Raises:
        ValueError: The bytes are invalid.
    """
    try:
        return schema_of_message(pulsar.Schema.FromString(stored))
    except DecodeError as error:
        raise ValueError(f"a stored schema cannot be read: {error}") from error


def _properties(message: pulsar.Schema) -> dict[str, str]:
    # In the type stubs, ``KeyValue`` is the enumeration's value of that name.
    return {item.key: item.value for item in cast(Any, message).properties}


_MANAGED_KEY = "__pulsar.v5.managed"
_LOOKED_AT_MAX = 100
"""Pairs of a client's metadata in which the mark is looked for; clients put it first."""


def is_managed(metadata: Iterable[pulsar.KeyValue]) -> bool:
    """Return whether a producer or consumer is marked as a part of one that follows a layout."""
    return any(
        each.key == _MANAGED_KEY and each.value == "true"
        for each in islice(metadata, _LOOKED_AT_MAX)
    )
