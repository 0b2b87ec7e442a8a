"""What callers see of the inventories: states, results and rejections as protobuf.

Errors have one form for all components: ``nextgen.client.wire.errors``.
"""

from __future__ import annotations

from nextgen.kernel.events.decider import Rejected
from protos.nextgen.v1 import inventory_pb2 as pb
from protos.nextgen.v1.policies_pb2 import Policies
from protos.nextgen.v1.shard_service_pb2 import CommandResult, TopicOutcome
from shards.domain.life import Life
from shards.domain.namespace import Namespace
from shards.domain.policies import PackedPolicies
from shards.domain.states import State, StateKind
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic

KINDS: dict[int, StateKind] = {
    pb.KIND_TENANT: StateKind.TENANT,
    pb.KIND_NAMESPACE: StateKind.NAMESPACE,
    pb.KIND_TOPIC: StateKind.TOPIC,
}
"""What an inventory kind is kept as. ``KIND_UNSPECIFIED`` is nothing."""

_LIVES = {Life.ACTIVE: pb.LIFE_STATE_ACTIVE, Life.DELETING: pb.LIFE_STATE_DELETING}


def tenant_message(tenant: Tenant) -> pb.Tenant:
    return pb.Tenant(
        tenant_id=tenant.tenant_id,
        name=tenant.name,
        properties=dict(tenant.properties),
        version=tenant.version,
        state=_LIVES[tenant.life],
        policies=_policies(tenant.policies),
        policies_version=tenant.policies_version,
    )


def namespace_message(namespace: Namespace) -> pb.Namespace:
    return pb.Namespace(
        namespace_id=namespace.namespace_id,
        name=namespace.name,
        tenant_id=namespace.tenant_id,
        properties=dict(namespace.properties),
        version=namespace.version,
        state=_LIVES[namespace.life],
        policies=_policies(namespace.policies),
        policies_version=namespace.policies_version,
    )


def topic_message(topic: Topic) -> pb.Topic:
    return pb.Topic(
        topic_id=topic.topic_id,
        name=topic.name,
        partitions=topic.partitions,
        properties=dict(topic.properties),
        version=topic.version,
        namespace_id=topic.namespace_id,
        created_time_ms=topic.created_time_ms,
        policies=_policies(topic.policies),
        policies_version=topic.policies_version,
    )


def item_message(kind: pb.Kind, name: str, state: State | None) -> pb.Item:
    """Return one object, or its absence: an item without a value."""
    match state:
        case Tenant():
            return pb.Item(kind=kind, name=name, tenant=tenant_message(state))
        case Namespace():
            return pb.Item(kind=kind, name=name, namespace=namespace_message(state))
        case Topic():
            return pb.Item(kind=kind, name=name, topic=topic_message(state))
        case _:
            assert state is None, f"{type(state).__name__} is not in an inventory"
            return pb.Item(kind=kind, name=name)


def _policies(packed: PackedPolicies) -> Policies | None:
    return Policies.FromString(packed) if packed else None


def rejected_result(rejected: Rejected) -> CommandResult:
    return CommandResult(rejection_code=rejected.code.value, message=rejected.message)


def rejected_topic(rejected: Rejected) -> TopicOutcome:
    return TopicOutcome(rejection_code=rejected.code.value, message=rejected.message)
