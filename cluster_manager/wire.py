"""Protobuf to domain and back: the events of group 0's log, and the updates for nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from operator import attrgetter
from typing import Any

from cluster_manager.domain.broker_directory import Broker, BrokerRecorded
from cluster_manager.domain.capacity_ledger import (
    CapacityGranted,
    CapacityLeased,
    CapacityLeaseReleased,
)
from cluster_manager.domain.cluster import ClusterEvent, ClusterState
from cluster_manager.domain.configuration import (
    Configuration,
    ConfigurationSet,
    SetConfiguration,
)
from cluster_manager.domain.exclusions import NodeExcluded
from cluster_manager.domain.lookup_reports import LookupWindowRecorded
from cluster_manager.domain.membership import Node, NodeRegistered, NodeState, NodeStateSet
from cluster_manager.domain.node_placement import Move
from cluster_manager.domain.quotas import Quotas, QuotasSet, SetQuotas
from cluster_manager.domain.replica_changes import Change, ChangeReplicas, TakeMembers
from cluster_manager.domain.shard_map import Placement, ShardChanged, ShardMap, ShardMapChanged
from cluster_manager.domain.slot_moves.moves import (
    MovePhase,
    Report,
    SlotMove,
    SlotMoveChanged,
    TakeMoveReport,
)
from cluster_manager.domain.slot_moves.planning import PlanSlots
from cluster_manager.domain.slot_moves.plans import Plan, PlanChanged, PlanKind, PlanPhase
from cluster_manager.domain.slot_moves.ranges import SlotRanges
from nextgen.client.wire.fields import BROKER_ENDPOINTS, REPEATED, Conversion, FieldMap
from nextgen.client.wire.lookup_windows import window_from_proto, window_to_proto
from nextgen.client.wire.shard_map import led_shards
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.placement import SLOT_REQUEST_ID_CHARACTERS_MAX
from nextgen.kernel.routing.slots import SlotRun, SlotTable
from nextgen.replication.ports import Entry, Record
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import events_pb2 as events_pb

SCHEMA_VERSION = 1


_NODE = FieldMap(Node, events_pb.NodeRegistered)
_PLACEMENT = FieldMap(
    Placement,
    events_pb.ShardPlacement,
    converted={"replicas": REPEATED, "joining": REPEATED, "leaving": REPEATED},
)
_SLOT_RUN = FieldMap(SlotRun, events_pb.SlotRun)
_SHARD_CHANGED = FieldMap(
    ShardChanged,
    events_pb.ShardChanged,
    converted={
        "changed": _PLACEMENT.each,
        "slots": _SLOT_RUN.each,
        "removed": REPEATED,
    },
)
_NODE_STATE = FieldMap(NodeStateSet, events_pb.NodeStateSet, converted={"state": (str, NodeState)})


def _ranges_to_proto(ranges: SlotRanges) -> list[events_pb.SlotRange]:
    return [events_pb.SlotRange(first=first, last=last) for first, last in ranges]


def _ranges_from_proto(stored: Iterable[events_pb.SlotRange]) -> SlotRanges:
    return tuple((each.first, each.last) for each in stored)


_MOVE = FieldMap(
    SlotMove,
    events_pb.SlotMoveChanged,
    converted={
        "ranges": (_ranges_to_proto, _ranges_from_proto),
        "phase": (str, MovePhase),
    },
)
_PLAN = FieldMap(
    Plan,
    events_pb.PlanChanged,
    converted={
        "kind": (str, PlanKind),
        "phase": (str, PlanPhase),
        "wanted": _SLOT_RUN.each,
        "added": REPEATED,
        "removed": REPEATED,
        "retired": REPEATED,
    },
)
_BROKER = FieldMap(Broker, events_pb.BrokerRecorded, renamed=BROKER_ENDPOINTS)
_LEASED = FieldMap(CapacityLeased, events_pb.CapacityLeased)

node_to_proto = _NODE.to_stored
node_from_hello = FieldMap(Node, cluster_pb.Hello).from_stored
replica_move_to_proto = FieldMap(Move, cluster_pb.ReplicaMove).to_stored
placement_to_proto = _PLACEMENT.to_stored
move_to_proto = _MOVE.to_stored
plan_to_proto = _PLAN.to_stored
broker_to_proto = _BROKER.to_stored
broker_from_proto = _BROKER.from_stored
members_from_proto = FieldMap(
    TakeMembers,
    cluster_pb.MembersReport,
    converted={"voters": REPEATED, "learners": REPEATED},
).from_stored


def shard_map_to_proto(shard_map: ShardMap) -> events_pb.ShardMapChanged:
    return events_pb.ShardMapChanged(
        version=shard_map.version,
        slot_owners=shard_map.table.to_bytes(),
        shards=map(placement_to_proto, shard_map.placements),
    )


def shard_map_from_proto(stored: events_pb.ShardMapChanged) -> ShardMap:
    table = SlotTable.from_bytes(stored.version, stored.slot_owners)
    led = led_shards(stored)
    placements = map(_PLACEMENT.from_stored, stored.shards)
    return ShardMap(
        table, tuple(replace(each, has_led=each.shard_id in led) for each in placements)
    )


def change_from_proto(
    request: cluster_pb.ChangeReplicasRequest, connected: AbstractSet[str]
) -> ChangeReplicas:
    """Return the wish.

    Raises:
        InvalidRequest: This release does not know the kind of change.
    """
    change = _CHANGES.get(request.change)
    if change is None:
        raise InvalidRequest(f"a change of replicas of kind {request.change} is not known here")
    return ChangeReplicas(request.shard_id, request.node_id, change, connected)


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


def configuration_to_proto(configuration: Configuration) -> events_pb.ConfigurationSet:
    """Return the configuration, in the order of names."""
    return events_pb.ConfigurationSet(
        version=configuration.version,
        settings=[
            events_pb.Setting(name=name, value=text)
            for name, text in sorted(configuration.settings.items())
        ],
    )


def configuration_from_proto(stored: events_pb.ConfigurationSet) -> Configuration:
    return Configuration(stored.version, {each.name: each.value for each in stored.settings})


def set_configuration_from_proto(request: cluster_pb.SetConfigurationRequest) -> SetConfiguration:
    named = len(request.configuration.settings)
    return SetConfiguration(configuration_from_proto(request.configuration), named)


def plan_slots_from_proto(request: cluster_pb.PlanSlotsRequest) -> PlanSlots:
    """Return the wish.

    Raises:
        InvalidRequest: The kind of plan is not known here, or the request's id is too long.
    """
    try:
        kind = PlanKind(request.kind)
    except ValueError:
        raise InvalidRequest(f"a plan of kind {request.kind!r} is not known here") from None
    if len(request.request_id) > SLOT_REQUEST_ID_CHARACTERS_MAX:
        raise InvalidRequest(
            f"a request id has at most {SLOT_REQUEST_ID_CHARACTERS_MAX} characters"
        )
    return PlanSlots(
        kind,
        request.shard_id,
        request.into_shard,
        _ranges_from_proto(request.ranges),
        request.shards,
        request.request_id,
    )


def move_report_from_proto(report: cluster_pb.SlotMoveReport) -> TakeMoveReport:
    """Return the report.

    Raises:
        InvalidRequest: This release does not know what it says.
    """
    try:
        phase = Report(report.phase)
    except ValueError:
        raise InvalidRequest(f"no move of slots is {report.phase!r}") from None
    return TakeMoveReport(
        report.move_id,
        report.shard_id,
        phase,
        report.from_position,
        report.to_position,
        report.reason,
        {each.of: each.units for each in report.session_units},
        tuple([(each.first, each.last) for each in report.ranges]),
        report.from_shard,
        report.to_shard,
    )


def event_to_proto(event: ClusterEvent) -> events_pb.Event:
    """Return the stored form of ``event``."""
    payload, to_proto = _TO_PROTO[type(event)]
    return events_pb.Event(schema_version=SCHEMA_VERSION, **{payload: to_proto(event)})


def event_from_proto(event: events_pb.Event) -> ClusterEvent:
    """Return a stored event. An event of another component means that the log is broken."""
    payload = event.WhichOneof("payload")
    assert payload in _FROM_PROTO, f"event {payload} does not belong into group 0's log"
    return _FROM_PROTO[payload](getattr(event, payload))


def record_of(events: Iterable[ClusterEvent], time_ms: int) -> Record:
    """Return the record of one decision. It has no command id: no client command caused it."""
    stored = [event_to_proto(event) for event in events]
    assert stored, "a decision without events leaves no record"
    decided = events_pb.DecidedCommand(time_ms=time_ms, events=stored)
    return Record(decided.SerializeToString(), len(stored))


def events_of_entry(entry: Entry) -> Iterator[ClusterEvent]:
    """Yield the events of an entry, in order."""
    for record in entry.records:
        for event in events_pb.DecidedCommand.FromString(record.payload).events:
            yield event_from_proto(event)


def delta_update(
    events: Sequence[ClusterEvent],
    before: ShardMap | None = None,
    after: ShardMap | None = None,
) -> cluster_pb.ClusterUpdate | None:
    """Return the update that ``events`` mean for nodes, None if there is none.

    ``before`` and ``after`` are the maps around the events. A changed map is sent as ``map_delta``,
    unless one of the events has a whole map.
    """
    update = cluster_pb.ClusterUpdate()
    for event in events:
        match event:
            case NodeRegistered(node):
                update.nodes.append(node_to_proto(node))
            case BrokerRecorded(broker):
                update.brokers.append(broker_to_proto(broker))
            case QuotasSet(quotas):
                update.quotas.CopyFrom(quotas_to_proto(quotas))
            case ConfigurationSet(configuration):
                update.configuration.CopyFrom(configuration_to_proto(configuration))
            case NodeExcluded(node_id):
                update.excluded_nodes.append(node_id)
            case SlotMoveChanged(move):
                update.slot_moves.append(move_to_proto(move))
            case _:
                # A shard has its leases in the answer to its request; windows of lookups are
                # for readers of the log, and states of nodes for placing replicas.
                pass
    if after is not None and after is not before:
        if before is None or any(isinstance(event, ShardMapChanged) for event in events):
            update.shard_map.CopyFrom(shard_map_to_proto(after))
        else:
            changes = [event for event in events if isinstance(event, ShardChanged)]
            update.map_delta.CopyFrom(map_delta(before.version, changes))
    return update if update.ByteSize() else None


def map_delta(from_version: int, changes: Iterable[ShardChanged]) -> cluster_pb.ShardMapDelta:
    """Return what ``changes`` behind ``from_version`` mean together."""
    version = from_version
    placements: dict[int, Placement] = {}
    slots: list[SlotRun] = []
    removed: dict[int, None] = {}
    for change in changes:
        if change.version <= from_version:
            continue
        version = change.version
        slots.extend(change.slots)
        for placement in change.changed:
            placements[placement.shard_id] = placement
            removed.pop(placement.shard_id, None)
        for shard_id in change.removed:
            placements.pop(shard_id, None)
            removed[shard_id] = None
    return cluster_pb.ShardMapDelta(
        from_version=from_version,
        version=version,
        slots=map(_SLOT_RUN.to_stored, slots),
        changed=map(placement_to_proto, placements.values()),
        removed=removed,
    )


def with_whole_map(
    update: cluster_pb.ClusterUpdate, shard_map: ShardMap
) -> cluster_pb.ClusterUpdate:
    """Return ``update`` for a node that takes no deltas: with the whole map instead."""
    whole = cluster_pb.ClusterUpdate()
    whole.CopyFrom(update)
    whole.ClearField("map_delta")
    whole.shard_map.CopyFrom(shard_map_to_proto(shard_map))
    return whole


def full_update(
    state: ClusterState,
    leaders: Iterable[cluster_pb.LeaderReport],
    manager_endpoints: Iterable[str],
    known_map_version: int = 0,
) -> cluster_pb.ClusterUpdate:
    """Return the whole state that a node needs, without the map if it knows this one or a later."""
    update = cluster_pb.ClusterUpdate(
        full=True,
        leaders=leaders,
        brokers=[broker_to_proto(broker) for broker in state.directory.brokers.values()],
        nodes=[node_to_proto(node) for node in state.membership.nodes.values()],
        manager_endpoints=manager_endpoints,
        excluded_nodes=sorted(state.exclusions.node_ids),
        slot_moves=map(move_to_proto, state.slot_moves.under_way),
    )
    if state.shard_map is not None and state.shard_map.version > known_map_version:
        update.shard_map.CopyFrom(shard_map_to_proto(state.shard_map))
    if state.quotas.version:
        update.quotas.CopyFrom(quotas_to_proto(state.quotas))
    if state.configuration.version:
        update.configuration.CopyFrom(configuration_to_proto(state.configuration))
    return update


def _capacity_leased(stored: events_pb.CapacityLeased) -> CapacityLeased:
    leased = _LEASED.from_stored(stored)
    # Without a version it is of a release that did not record the use: all of it may be used.
    return leased if leased.version else replace(leased, units_used=leased.units)


def _only(field: str, event: type, conversion: Conversion) -> Conversion:
    """Return the stored form of an ``event`` with one field: that of the field's value."""
    to_proto, from_proto = conversion
    value_of = attrgetter(field)
    return lambda made: to_proto(value_of(made)), lambda stored: event(from_proto(stored))


_CHANGES = {
    cluster_pb.ChangeReplicasRequest.CHANGE_ADD: Change.ADD,
    cluster_pb.ChangeReplicasRequest.CHANGE_REMOVE: Change.REMOVE,
    cluster_pb.ChangeReplicasRequest.CHANGE_CANCEL: Change.CANCEL,
}

_EVENTS: dict[str, tuple[type, Conversion]] = {
    "node_registered": (NodeRegistered, _only("node", NodeRegistered, _NODE.one)),
    "shard_map_changed": (
        ShardMapChanged,
        _only("shard_map", ShardMapChanged, (shard_map_to_proto, shard_map_from_proto)),
    ),
    "shard_changed": (ShardChanged, _SHARD_CHANGED.one),
    "broker_recorded": (BrokerRecorded, _only("broker", BrokerRecorded, _BROKER.one)),
    "lookup_window_recorded": (
        LookupWindowRecorded,
        _only("window", LookupWindowRecorded, (window_to_proto, window_from_proto)),
    ),
    "quotas_set": (QuotasSet, _only("quotas", QuotasSet, (quotas_to_proto, quotas_from_proto))),
    "configuration_set": (
        ConfigurationSet,
        _only(
            "configuration", ConfigurationSet, (configuration_to_proto, configuration_from_proto)
        ),
    ),
    "node_excluded": (NodeExcluded, FieldMap(NodeExcluded, events_pb.NodeExcluded).one),
    "plan_changed": (PlanChanged, _only("plan", PlanChanged, _PLAN.one)),
    "slot_move_changed": (SlotMoveChanged, _only("move", SlotMoveChanged, _MOVE.one)),
    "node_state_set": (NodeStateSet, _NODE_STATE.one),
    "capacity_granted": (
        CapacityGranted,
        FieldMap(CapacityGranted, events_pb.CapacityGranted).one,
    ),
    "capacity_leased": (CapacityLeased, (_LEASED.to_stored, _capacity_leased)),
    "capacity_lease_released": (
        CapacityLeaseReleased,
        FieldMap(CapacityLeaseReleased, events_pb.CapacityLeaseReleased).one,
    ),
}
"""Decoders by the name of the payload."""

_TO_PROTO: dict[type, tuple[str, Callable[[Any], Any]]] = {
    event: (payload, to_proto) for payload, (event, (to_proto, _)) in _EVENTS.items()
}
_FROM_PROTO: dict[str | None, Callable[[Any], ClusterEvent]] = {
    payload: from_proto for payload, (_, (_, from_proto)) in _EVENTS.items()
}
