"""States, results and rejections of the inventories as protobuf, for callers.

Errors are the same for all components: ``nextgen.client.wire.errors``.
"""

from __future__ import annotations

from typing import Any

from nextgen.client.wire.fields import Conversion, FieldMap
from nextgen.kernel.events.decider import Rejected
from protos.nextgen.v1 import inventory_pb2 as pb
from protos.nextgen.v1.policies_pb2 import Policies
from protos.nextgen.v1.shard_service_pb2 import CommandResult, TopicOutcome
from shards.domain.life import Life
from shards.domain.namespace import Namespace
from shards.domain.policies import PackedPolicies
from shards.domain.scalable.state import ScalableTopic
from shards.domain.states import State, StateKind
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.wire.event import to_properties
from shards.wire.scalable import scalable_topic_message
from shards.wire.slot_event import OLD_NAMES

KINDS: dict[int, StateKind] = {
    pb.KIND_TENANT: StateKind.TENANT,
    pb.KIND_NAMESPACE: StateKind.NAMESPACE,
    pb.KIND_TOPIC: StateKind.TOPIC,
    pb.KIND_SCALABLE_TOPIC: StateKind.SCALABLE_TOPIC,
}
"""The state kind of each inventory kind; ``KIND_UNSPECIFIED`` has none."""

_STATES = {Life.ACTIVE: pb.LIFE_STATE_ACTIVE, Life.DELETING: pb.LIFE_STATE_DELETING}
_LIVES = {state: life for life, state in _STATES.items()}


def _unpacked(policies: PackedPolicies) -> Policies | None:
    return Policies.FromString(policies) if policies else None


def _packed(policies: Policies) -> PackedPolicies:
    return policies.SerializeToString(deterministic=True)


_CONVERTED: dict[str, Conversion] = {
    "properties": (dict, to_properties),
    "policies": (_unpacked, _packed),
}
_PARENT: dict[str, Any] = {
    "renamed": {"life": "state"},
    "converted": _CONVERTED | {"life": (_STATES.__getitem__, _LIVES.__getitem__)},
}

_TENANT = FieldMap(Tenant, pb.Tenant, **_PARENT)
_NAMESPACE = FieldMap(Namespace, pb.Namespace, **_PARENT)
_TOPIC = FieldMap(Topic, pb.Topic, converted={**_CONVERTED, "former_names": OLD_NAMES.each})

tenant_message = _TENANT.to_stored
namespace_message = _NAMESPACE.to_stored
topic_message = _TOPIC.to_stored

tenant_state = _TENANT.from_stored
namespace_state = _NAMESPACE.from_stored
topic_state = _TOPIC.from_stored


def item_message(kind: pb.Kind, name: str, state: State | None) -> pb.Item:
    """Return one object, or its absence: an item without a value."""
    match state:
        case Tenant():
            return pb.Item(kind=kind, name=name, tenant=tenant_message(state))
        case Namespace():
            return pb.Item(kind=kind, name=name, namespace=namespace_message(state))
        case Topic():
            return pb.Item(kind=kind, name=name, topic=topic_message(state))
        case ScalableTopic():
            message = scalable_topic_message(state)
            return pb.Item(kind=kind, name=name, scalable_topic=message)
        case _:
            assert state is None, f"{type(state).__name__} is not in an inventory"
            return pb.Item(kind=kind, name=name)


def rejected_result(rejected: Rejected) -> CommandResult:
    return CommandResult(rejection_code=rejected.code.value, message=rejected.message)


def rejected_topic(rejected: Rejected) -> TopicOutcome:
    return TopicOutcome(rejection_code=rejected.code.value, message=rejected.message)
