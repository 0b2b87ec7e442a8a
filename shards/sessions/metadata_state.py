"""Tenants, namespaces and topics as a broker manager follows them, from items and events.

Events carry no version. It is computed: a snapshot's item has it, and every later event raises it
by one, by the rules of the inventories themselves.
"""

from __future__ import annotations

import sys

from protos.nextgen.v1.broker_service_pb2 import Delivery, MetadataRemoved
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import LIFE_STATE_DELETING, Item, Kind
from protos.nextgen.v1.inventory_pb2 import Namespace as NamespaceMessage
from protos.nextgen.v1.inventory_pb2 import Tenant as TenantMessage
from protos.nextgen.v1.inventory_pb2 import Topic as TopicMessage
from shards.domain import namespace as namespaces
from shards.domain import tenant as tenants
from shards.domain import topic as topics
from shards.domain.life import Life
from shards.domain.namespace import Namespace
from shards.domain.policies import NO_PACKED_POLICIES, PackedPolicies
from shards.domain.renames.names import OldName, TopicRenamed
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.wire.event import decode_event, to_properties
from shards.wire.inventory import namespace_message, tenant_message, topic_message

MetadataState = Tenant | Namespace | Topic

_TENANT_EVENTS = (
    tenants.TenantCreated,
    tenants.TenantPropertiesSet,
    tenants.TenantPoliciesSet,
    tenants.TenantDeletionStarted,
    tenants.TenantDeletionAborted,
    tenants.TenantDeleted,
)
_NAMESPACE_EVENTS = (
    namespaces.NamespaceCreated,
    namespaces.NamespacePropertiesSet,
    namespaces.NamespacePoliciesSet,
    namespaces.NamespaceDeletionStarted,
    namespaces.NamespaceDeletionAborted,
    namespaces.NamespaceDeleted,
)
_TOPIC_EVENTS = (
    topics.TopicCreated,
    topics.TopicPropertiesSet,
    topics.TopicPoliciesSet,
    topics.TopicPartitionsGrown,
    TopicRenamed,
    topics.TopicDeleted,
)


def state_of(item: Item, *, name: str = "", object_id: str = "") -> MetadataState | None:
    """Return the state that ``item`` holds, None for an absent object.

    ``name`` and ``object_id`` are what the caller keeps of the topic that it expects: the state
    shares these texts with it, and its namespace's id with all of the namespace.
    """
    match item.WhichOneof("value"):
        case "tenant":
            tenant = item.tenant
            return Tenant(
                tenant.tenant_id,
                tenant.name,
                to_properties(tenant.properties),
                tenant.version,
                _life(tenant.state),
                _packed(tenant),
                tenant.policies_version,
            )
        case "namespace":
            namespace = item.namespace
            return Namespace(
                namespace.namespace_id,
                namespace.name,
                namespace.tenant_id,
                to_properties(namespace.properties),
                namespace.version,
                _life(namespace.state),
                _packed(namespace),
                namespace.policies_version,
            )
        case "topic":
            topic = item.topic
            return Topic(
                object_id if topic.topic_id == object_id else topic.topic_id,
                name if topic.name == name else topic.name,
                topic.partitions,
                topic.version,
                sys.intern(topic.namespace_id),
                topic.created_time_ms,
                to_properties(topic.properties),
                _packed(topic),
                topic.policies_version,
                tuple([OldName(each.name, each.until_ms) for each in topic.former_names]),
            )
    return None


def state_after(state: MetadataState | None, event: Event) -> MetadataState | None:
    """Return ``state`` as it is after ``event``; unchanged if the event is about another object.

    A topic that gets this name has come as a whole with its rename.

    Raises:
        AssertionError: An event before this one was missed.
        UnknownEvent: The event is of a later program.
    """
    happened = decode_event(event)
    if isinstance(happened, _TENANT_EVENTS):
        assert not isinstance(state, Namespace | Topic), f"{happened.name} was no tenant"
        return tenants.evolve(state, happened)
    if isinstance(happened, _NAMESPACE_EVENTS):
        assert not isinstance(state, Tenant | Topic), f"{happened.name} was no namespace"
        return namespaces.evolve(state, happened)
    if isinstance(happened, _TOPIC_EVENTS):
        assert not isinstance(state, Tenant | Namespace), f"{happened.name} was no topic"
        if isinstance(happened, TopicRenamed) and _is_other(state, happened.topic_id):
            return _topic_of(happened)
        return topics.evolve(state, happened)
    return state


def _is_other(state: Topic | None, topic_id: str) -> bool:
    return state is None or state.topic_id != topic_id


def _topic_of(renamed: TopicRenamed) -> Topic:
    return Topic(
        renamed.topic_id,
        renamed.new_name,
        renamed.partitions,
        renamed.version,
        renamed.namespace_id,
        renamed.created_time_ms,
        renamed.properties,
        renamed.policies,
        renamed.policies_version,
        renamed.former_names,
    )


def id_of(state: MetadataState) -> str:
    match state:
        case Tenant():
            return state.tenant_id
        case Namespace():
            return state.namespace_id
        case Topic():
            return state.topic_id


def change_delivery(state: MetadataState) -> Delivery:
    """Return the delivery of ``state`` for a broker."""
    match state:
        case Tenant():
            return Delivery(tenant=tenant_message(state))
        case Namespace():
            return Delivery(namespace=namespace_message(state))
        case Topic():
            return Delivery(topic=topic_message(state))


def removal_delivery(kind: Kind, name: str, object_id: str) -> Delivery:
    return Delivery(removed=MetadataRemoved(kind=kind, name=name, id=object_id))


def _life(state: int) -> Life:
    return Life.DELETING if state == LIFE_STATE_DELETING else Life.ACTIVE


def _packed(message: TenantMessage | NamespaceMessage | TopicMessage) -> PackedPolicies:
    if not message.HasField("policies"):
        return NO_PACKED_POLICIES
    return message.policies.SerializeToString(deterministic=True)
