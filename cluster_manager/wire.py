"""Protobuf to domain and back: the events of group 0's log, and what travels to nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from cluster_manager.domain.broker_directory import Broker, BrokerRecorded
from cluster_manager.domain.capacity_ledger import (
    CapacityGranted,
    CapacityLeased,
    CapacityLeaseReleased,
)
from cluster_manager.domain.cluster import ClusterEvent, ClusterState
from cluster_manager.domain.lookup_reports import LookupWindowRecorded
from cluster_manager.domain.membership import Node, NodeRegistered
from cluster_manager.domain.quotas import Quotas, QuotasSet, SetQuotas
from cluster_manager.domain.replica_changes import Change, ChangeReplicas, TakeMembers
from cluster_manager.domain.shard_map import Placement, ShardMap, ShardMapChanged
from nextgen.client.wire.lookup_windows import window_from_proto, window_to_proto
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.routing.slots import SlotTable
from nextgen.replication.ports import Entry, Record
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import events_pb2 as events_pb

SCHEMA_VERSION = 1


def node_to_proto(node: Node) -> events_pb.NodeRegistered:
    return events_pb.NodeRegistered(
        node_id=node.node_id,
        kind=node.kind,
        grpc=node.grpc,
        raft_host=node.raft_host,
        raft_port=node.raft_port,
        http=node.http,
    )


def node_from_hello(hello: cluster_pb.Hello) -> Node:
    return Node(
        node_id=hello.node_id,
        kind=hello.kind,
        grpc=hello.grpc,
        raft_host=hello.raft_host,
        raft_port=hello.raft_port,
        http=hello.http,
    )


def shard_map_to_proto(shard_map: ShardMap) -> events_pb.ShardMapChanged:
    return events_pb.ShardMapChanged(
        version=shard_map.version,
        slot_owners=shard_map.table.to_bytes(),
        shards=[placement_to_proto(placement) for placement in shard_map.placements],
    )


def placement_to_proto(placement: Placement) -> events_pb.ShardPlacement:
    return events_pb.ShardPlacement(
        shard_id=placement.shard_id,
        replicas=placement.replicas,
        joining=placement.joining,
        leaving=placement.leaving,
        configuration_index=placement.configuration_index,
    )


def change_from_proto(
    request: cluster_pb.ChangeReplicasRequest, connected: AbstractSet[str]
) -> ChangeReplicas:
    """Return the wish.

    Raises:
        InvalidRequest: It is none that is known here.
    """
    change = _CHANGES.get(request.change)
    if change is None:
        raise InvalidRequest(f"a change of replicas of kind {request.change} is not known here")
    return ChangeReplicas(request.shard_id, request.node_id, change, connected)


def members_from_proto(report: cluster_pb.MembersReport) -> TakeMembers:
    return TakeMembers(
        report.shard_id,
        report.configuration_index,
        tuple(report.voters),
        tuple(report.learners),
    )


def broker_to_proto(broker: Broker) -> events_pb.BrokerRecorded:
    return events_pb.BrokerRecorded(
        broker_id=broker.broker_id,
        session_id=broker.session_id,
        epoch=broker.epoch,
        is_live=broker.is_live,
        endpoints=events_pb.BrokerEndpoints(
            pulsar_url=broker.pulsar_url, grpc=broker.grpc, http=broker.http
        ),
        capacity_units=broker.capacity_units,
        zone=broker.zone,
        rack=broker.rack,
        quarantined_until_ms=broker.quarantined_until_ms,
        draining=broker.draining,
        drain_units_per_second=broker.drain_units_per_second,
        revision=broker.revision,
    )


def broker_from_proto(recorded: events_pb.BrokerRecorded) -> Broker:
    return Broker(
        broker_id=recorded.broker_id,
        session_id=recorded.session_id,
        epoch=recorded.epoch,
        is_live=recorded.is_live,
        pulsar_url=recorded.endpoints.pulsar_url,
        grpc=recorded.endpoints.grpc,
        http=recorded.endpoints.http,
        capacity_units=recorded.capacity_units,
        zone=recorded.zone,
        rack=recorded.rack,
        quarantined_until_ms=recorded.quarantined_until_ms,
        draining=recorded.draining,
        drain_units_per_second=recorded.drain_units_per_second,
        revision=recorded.revision,
    )


def quotas_to_proto(quotas: Quotas) -> events_pb.QuotasSet:
    """Return the quotas, in the order of names."""
    return events_pb.QuotasSet(
        version=quotas.version,
        brokers=[
            events_pb.BrokerQuota(broker_id=broker_id, units=units)
            for broker_id, units in sorted(quotas.brokers.items())
        ],
        tenants=[
            events_pb.TenantQuota(tenant=tenant, units=units)
            for tenant, units in sorted(quotas.tenants.items())
        ],
        source=quotas.source,
    )


def quotas_from_proto(stored: events_pb.QuotasSet) -> Quotas:
    return Quotas(
        stored.version,
        {each.broker_id: each.units for each in stored.brokers},
        {each.tenant: each.units for each in stored.tenants},
        stored.source,
    )


def set_quotas_from_proto(request: cluster_pb.SetQuotasRequest) -> SetQuotas:
    named = len(request.quotas.brokers) + len(request.quotas.tenants)
    return SetQuotas(quotas_from_proto(request.quotas), named)


def event_to_proto(event: ClusterEvent) -> events_pb.Event:
    """Return ``event`` as it is stored."""
    match event:
        case NodeRegistered(node):
            return _event(node_registered=node_to_proto(node))
        case ShardMapChanged(shard_map):
            return _event(shard_map_changed=shard_map_to_proto(shard_map))
        case BrokerRecorded(broker):
            return _event(broker_recorded=broker_to_proto(broker))
        case LookupWindowRecorded(window):
            return _event(lookup_window_recorded=window_to_proto(window))
        case QuotasSet(quotas):
            return _event(quotas_set=quotas_to_proto(quotas))
        case CapacityGranted(broker_id, session_id, units):
            return _event(
                capacity_granted=events_pb.CapacityGranted(
                    broker_id=broker_id, session_id=session_id, units=units
                )
            )
        case CapacityLeased():
            return _event(capacity_leased=_lease_to_proto(event))
        case CapacityLeaseReleased(broker_id, session_id, shard_id, reason):
            return _event(
                capacity_lease_released=events_pb.CapacityLeaseReleased(
                    broker_id=broker_id, session_id=session_id, shard_id=shard_id, reason=reason
                )
            )


def event_from_proto(event: events_pb.Event) -> ClusterEvent:
    """Return a stored event. One that is not the cluster manager's is a broken log."""
    payload = event.WhichOneof("payload")
    assert payload in _FROM_PROTO, f"event {payload} does not belong into group 0's log"
    return _FROM_PROTO[payload](getattr(event, payload))


def record_of(events: Iterable[ClusterEvent], time_ms: int) -> Record:
    """Return the record of one decision. It has no command id: nobody asked for it by one."""
    stored = [event_to_proto(event) for event in events]
    assert stored, "a decision without events leaves no record"
    decided = events_pb.DecidedCommand(time_ms=time_ms, events=stored)
    return Record(decided.SerializeToString(), len(stored))


def events_of_entry(entry: Entry) -> Iterator[ClusterEvent]:
    """Yield the events of an entry, in order."""
    for record in entry.records:
        for event in events_pb.DecidedCommand.FromString(record.payload).events:
            yield event_from_proto(event)


def delta_update(events: Iterable[ClusterEvent]) -> cluster_pb.ClusterUpdate | None:
    """Return what nodes have to know of ``events``; None if nothing."""
    update = cluster_pb.ClusterUpdate()
    for event in events:
        match event:
            case NodeRegistered(node):
                update.nodes.append(node_to_proto(node))
            case ShardMapChanged(shard_map):
                update.shard_map.CopyFrom(shard_map_to_proto(shard_map))
            case BrokerRecorded(broker):
                update.brokers.append(broker_to_proto(broker))
            case QuotasSet(quotas):
                update.quotas.CopyFrom(quotas_to_proto(quotas))
            case _:
                # The capacity ledger concerns the shard that asked, and it has its answer;
                # windows of lookups are for who reads the log.
                pass
    return update if update.ByteSize() else None


def full_update(
    state: ClusterState,
    leaders: Iterable[cluster_pb.LeaderReport],
    manager_endpoints: Iterable[str],
) -> cluster_pb.ClusterUpdate:
    """Return everything that a node has to know."""
    update = cluster_pb.ClusterUpdate(
        full=True,
        leaders=leaders,
        brokers=[broker_to_proto(broker) for broker in state.directory.brokers.values()],
        nodes=[node_to_proto(node) for node in state.membership.nodes.values()],
        manager_endpoints=manager_endpoints,
    )
    if state.shard_map is not None:
        update.shard_map.CopyFrom(shard_map_to_proto(state.shard_map))
    if state.quotas.version:
        update.quotas.CopyFrom(quotas_to_proto(state.quotas))
    return update


def _lease_to_proto(event: CapacityLeased) -> events_pb.CapacityLeased:
    return events_pb.CapacityLeased(
        broker_id=event.broker_id,
        session_id=event.session_id,
        shard_id=event.shard_id,
        units=event.units,
        expires_at_ms=event.expires_at_ms,
        version=event.version,
        units_used=event.units_used,
        term=event.term,
    )


def _capacity_leased(stored: events_pb.CapacityLeased) -> CapacityLeased:
    return CapacityLeased(
        stored.broker_id,
        stored.session_id,
        stored.shard_id,
        stored.units,
        stored.expires_at_ms,
        stored.version,
        # Without a version it was written when nobody recorded the use: all of it may be used.
        stored.units_used if stored.version else stored.units,
        stored.term,
    )


def _event(**payload: Any) -> events_pb.Event:
    return events_pb.Event(schema_version=SCHEMA_VERSION, **payload)


def _shard_map_changed(stored: events_pb.ShardMapChanged) -> ShardMapChanged:
    table = SlotTable.from_bytes(stored.version, stored.slot_owners)
    placements = tuple(
        Placement(
            placement.shard_id,
            tuple(placement.replicas),
            tuple(placement.joining),
            tuple(placement.leaving),
            placement.configuration_index,
        )
        for placement in stored.shards
    )
    return ShardMapChanged(ShardMap(table, placements))


def _node_registered(stored: events_pb.NodeRegistered) -> NodeRegistered:
    return NodeRegistered(
        Node(
            node_id=stored.node_id,
            kind=stored.kind,
            grpc=stored.grpc,
            raft_host=stored.raft_host,
            raft_port=stored.raft_port,
            http=stored.http,
        )
    )


_CHANGES = {
    cluster_pb.ChangeReplicasRequest.CHANGE_ADD: Change.ADD,
    cluster_pb.ChangeReplicasRequest.CHANGE_REMOVE: Change.REMOVE,
    cluster_pb.ChangeReplicasRequest.CHANGE_CANCEL: Change.CANCEL,
}

_FROM_PROTO: dict[str | None, Callable[[Any], ClusterEvent]] = {
    "node_registered": _node_registered,
    "shard_map_changed": _shard_map_changed,
    "broker_recorded": lambda stored: BrokerRecorded(broker_from_proto(stored)),
    "lookup_window_recorded": lambda stored: LookupWindowRecorded(window_from_proto(stored)),
    "quotas_set": lambda stored: QuotasSet(quotas_from_proto(stored)),
    "capacity_granted": lambda stored: CapacityGranted(
        stored.broker_id, stored.session_id, stored.units
    ),
    "capacity_leased": _capacity_leased,
    "capacity_lease_released": lambda stored: CapacityLeaseReleased(
        stored.broker_id, stored.session_id, stored.shard_id, stored.reason
    ),
}
