"""The values that the client library returns: frozen, made from protobuf messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nextgen.client.wire.fields import BROKER_ENDPOINTS, PROPERTIES, FieldMap
from nextgen.client.wire.layouts import SEGMENT
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.scalable.segments import Segment
from protos.nextgen.v1 import inventory_pb2, layouts_pb2
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, LeaderReport
from protos.nextgen.v1.discovery_service_pb2 import WriteResponse
from protos.nextgen.v1.events_pb2 import BrokerRecorded, NodeRegistered, ShardPlacement
from protos.nextgen.v1.inventory_pb2 import LIFE_STATE_ACTIVE, LIFE_STATE_DELETING
from protos.nextgen.v1.shard_service_pb2 import TopicOutcome


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant. ``is_deleting``: its deletion has begun and nothing is created below it."""

    name: str
    tenant_id: str
    properties: Mapping[str, str]
    version: int
    is_deleting: bool


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace; ``name`` is ``tenant/namespace``."""

    name: str
    namespace_id: str
    tenant_id: str
    properties: Mapping[str, str]
    version: int
    is_deleting: bool


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; ``partitions`` is 0 for one that is not partitioned."""

    name: str
    topic_id: str
    partitions: int
    properties: Mapping[str, str]
    version: int
    namespace_id: str
    created_time_ms: int


@dataclass(frozen=True, slots=True)
class ScalableSubscription:
    """A subscription of a scalable topic.

    ``type`` is ``stream``, ``queue`` or ``checkpoint``; ``phase`` is ``live`` once every segment
    has its cursor. ``consumers`` are the registered ones, with the segments of each.
    """

    name: str
    type: str
    phase: str
    consumers: Mapping[str, tuple[int, ...]]
    drained: tuple[int, ...]
    """Sealed segments of which everything is acknowledged."""


@dataclass(frozen=True, slots=True)
class ScalableTopic:
    """The layout of a scalable topic: its segments by id, its subscriptions by name.

    ``epoch`` grows with each change of the segments.
    """

    name: str
    topic_id: str
    epoch: int
    version: int
    segments: tuple[Segment, ...]
    subscriptions: tuple[ScalableSubscription, ...]


@dataclass(frozen=True, slots=True)
class TopicNamesPage:
    """Names of topics, each with its number of partitions, in the order of the names.

    ``next_page_token`` is that of the page behind it, "" if this is the last one.
    """

    partitions: Mapping[str, int]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class TopicCount:
    """How many topics there are, and how many units: topics without partitions, and partitions."""

    topics: int
    units: int


@dataclass(frozen=True, slots=True)
class Written:
    """An accepted write. A read at ``position`` of ``shard_id`` or later sees it."""

    id: str
    version: int
    shard_id: int
    position: int


@dataclass(frozen=True, slots=True)
class ObjectPolicies:
    """The policies of one object. ``version`` is that of its own policies, 0: never set."""

    policies: Policies
    version: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    segments: int = 0
    """Of a scalable topic, whose name is ``topic://tenant/namespace/name``; 0 for one."""


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """The outcome of one topic of a batch. ``rejection_code`` is empty if it was created."""

    name: str
    topic_id: str
    rejection_code: str
    message: str

    @property
    def is_created(self) -> bool:
        return not self.rejection_code


@dataclass(frozen=True, slots=True)
class TopicLocation:
    """Where a topic is served, or, with ``rejection_code`` set, why it is not.

    ``epoch`` grows with each assignment of this topic or partition. With PARTITIONED,
    ``partitions`` is the number of partitions to look up instead. ``retryable``: a later lookup
    may succeed, ``retry_after_ms`` from now at the earliest.
    """

    topic: str
    broker_id: str
    broker_url: str
    broker_grpc: str
    epoch: int
    session_id: str
    topic_id: str
    shard_id: int
    position: int
    rejection_code: str
    message: str
    partitions: int
    retryable: bool
    retry_after_ms: int = 0

    @property
    def is_found(self) -> bool:
        return not self.rejection_code


@dataclass(frozen=True, slots=True)
class ShardState:
    """A shard and its leader; ``leader_node`` is empty while none is known."""

    shard_id: int
    replicas: tuple[str, ...]
    leader_node: str
    leader_grpc: str
    term: int
    slots: int


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The latest session of a broker."""

    broker_id: str
    session_id: str
    epoch: int
    is_live: bool
    pulsar_url: str
    grpc: str
    http: str
    capacity_units: int
    zone: str


@dataclass(frozen=True, slots=True)
class NodeState:
    """A process that has joined the cluster."""

    node_id: str
    kind: str
    grpc: str
    http: str


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster as one discovery node knows it."""

    shard_map_version: int
    shards: tuple[ShardState, ...]
    brokers: tuple[BrokerState, ...]
    nodes: tuple[NodeState, ...]
    manager_endpoints: tuple[str, ...]


_OBJECT: dict[str, Any] = {
    "renamed": {"is_deleting": "state"},
    "converted": {
        "properties": PROPERTIES,
        "is_deleting": (
            {False: LIFE_STATE_ACTIVE, True: LIFE_STATE_DELETING}.__getitem__,
            lambda state: state == LIFE_STATE_DELETING,
        ),
    },
}

tenant_of = FieldMap(Tenant, inventory_pb2.Tenant, **_OBJECT).from_stored
namespace_of = FieldMap(Namespace, inventory_pb2.Namespace, **_OBJECT).from_stored
topic_of = FieldMap(Topic, inventory_pb2.Topic, converted={"properties": PROPERTIES}).from_stored


def _subscription_of(stored: layouts_pb2.ScalableSubscription) -> ScalableSubscription:
    assigned = {each.consumer_name: tuple(each.segments) for each in stored.assigned}
    return ScalableSubscription(
        stored.name,
        stored.type,
        stored.phase,
        {each.name: assigned.get(each.name, ()) for each in stored.consumers},
        tuple(stored.drained),
    )


def scalable_topic_of(stored: layouts_pb2.ScalableTopic) -> ScalableTopic:
    return ScalableTopic(
        stored.name,
        stored.topic_id,
        stored.epoch,
        stored.version,
        tuple(map(SEGMENT.from_stored, stored.segments)),
        tuple(map(_subscription_of, stored.subscriptions)),
    )


written_of = FieldMap(Written, WriteResponse).from_stored
location_of = FieldMap(TopicLocation, inventory_pb2.LookupAnswer).from_stored
_node_of = FieldMap(NodeState, NodeRegistered).from_stored
_broker_of = FieldMap(BrokerState, BrokerRecorded, renamed=BROKER_ENDPOINTS).from_stored


def created_topic_of(name: str, message: TopicOutcome) -> CreatedTopic:
    return CreatedTopic(name, message.topic_id, message.rejection_code, message.message)


def cluster_of(update: ClusterUpdate, slots_by_shard: Mapping[int, int]) -> ClusterState:
    """Return the state in a full update; ``slots_by_shard`` counts the slots of its map."""
    leaders = {leader.shard_id: leader for leader in update.leaders}
    placements = sorted(update.shard_map.shards, key=lambda shard: shard.shard_id)
    return ClusterState(
        shard_map_version=update.shard_map.version,
        shards=tuple(
            _shard_of(
                placement,
                leaders.get(placement.shard_id, _NO_LEADER),
                slots_by_shard.get(placement.shard_id, 0),
            )
            for placement in placements
        ),
        brokers=tuple(map(_broker_of, sorted(update.brokers, key=lambda broker: broker.broker_id))),
        nodes=tuple(map(_node_of, sorted(update.nodes, key=lambda node: node.node_id))),
        manager_endpoints=tuple(update.manager_endpoints),
    )


_NO_LEADER = LeaderReport()


def _shard_of(placement: ShardPlacement, leader: LeaderReport, slots: int) -> ShardState:
    return ShardState(
        shard_id=placement.shard_id,
        replicas=tuple(placement.replicas),
        leader_node=leader.node_id,
        leader_grpc=leader.grpc,
        term=leader.term,
        slots=slots,
    )
