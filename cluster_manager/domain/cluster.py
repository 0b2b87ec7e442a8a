"""The cluster manager's whole hard state, and the decisions that touch more than one part of it.

Such a decision makes one record, so its parts take effect together or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce

from cluster_manager.domain import (
    broker_directory,
    capacity_ledger,
    configuration,
    exclusions,
    lookup_reports,
    membership,
    quotas,
    replica_changes,
    shard_map,
)
from cluster_manager.domain.broker_directory import (
    Broker,
    BrokerDirectory,
    BrokerRecorded,
    RecordBroker,
)
from cluster_manager.domain.capacity_ledger import Ledger, LedgerEvent, ReleaseLeases
from cluster_manager.domain.configuration import (
    Configuration,
    ConfigurationSet,
    SetConfiguration,
)
from cluster_manager.domain.exclusions import ExcludeNode, Exclusions, NodeExcluded
from cluster_manager.domain.lookup_reports import LookupReports, LookupWindowRecorded
from cluster_manager.domain.membership import (
    SHARD_KIND,
    Membership,
    Node,
    NodeRegistered,
    NodeState,
    NodeStateSet,
    RegisterNode,
    SetNodeState,
)
from cluster_manager.domain.quotas import Quotas, QuotasSet, SetQuotas
from cluster_manager.domain.replica_changes import Change, ChangeReplicas, TakeMembers
from cluster_manager.domain.shard_map import (
    CreateShardMap,
    ShardChanged,
    ShardMap,
    ShardMapChanged,
)
from cluster_manager.domain.slot_moves import adoption, moves, planning, plans
from cluster_manager.domain.slot_moves.moves import (
    MovePhase,
    PlanMove,
    Report,
    SlotMoveChanged,
    SlotMoves,
    StopMove,
    TakeMoveReport,
)
from cluster_manager.domain.slot_moves.planning import PlanContext, PlanSlots
from cluster_manager.domain.slot_moves.plans import PlanChanged, Plans
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode

ClusterEvent = (
    NodeRegistered
    | ShardMapChanged
    | ShardChanged
    | BrokerRecorded
    | LookupWindowRecorded
    | QuotasSet
    | ConfigurationSet
    | NodeExcluded
    | PlanChanged
    | SlotMoveChanged
    | NodeStateSet
    | LedgerEvent
)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The fold of group 0's whole log."""

    membership: Membership = field(default_factory=Membership)
    shard_map: ShardMap | None = None
    directory: BrokerDirectory = field(default_factory=BrokerDirectory)
    ledger: Ledger = field(default_factory=Ledger)
    lookup_reports: LookupReports = field(default_factory=LookupReports)
    quotas: Quotas = field(default_factory=Quotas)
    configuration: Configuration = field(default_factory=Configuration)
    exclusions: Exclusions = field(default_factory=Exclusions)
    slot_moves: SlotMoves = field(default_factory=SlotMoves)
    plans: Plans = field(default_factory=Plans)


@dataclass(frozen=True, slots=True)
class FirstMapPlan:
    """The configuration of the first shard map: when it is made, and its size."""

    initial_shard_nodes: int
    shards: int
    replication_factor: int


INITIAL = ClusterState()


def decide_register(
    state: ClusterState, node: Node, plan: FirstMapPlan
) -> Accepted[ClusterEvent] | Rejected:
    """Register ``node``. The last of the initial shard nodes causes the first shard map."""
    registration = membership.decide(state.membership, RegisterNode(node))
    if isinstance(registration, Rejected):
        return registration
    events: tuple[ClusterEvent, ...] = registration.events
    after = fold_events(state, events)
    node_ids = after.membership.of_kind(SHARD_KIND)
    if after.shard_map is None and len(node_ids) >= plan.initial_shard_nodes:
        zones = {node_id: after.membership.nodes[node_id].zone for node_id in node_ids}
        command = CreateShardMap(node_ids, plan.shards, plan.replication_factor, zones)
        creation = shard_map.decide(after.shard_map, command)
        if isinstance(creation, Accepted):
            events += creation.events
    return Accepted(events)


def decide_node_state(
    state: ClusterState, command: SetNodeState
) -> Accepted[ClusterEvent] | Rejected:
    """Set a shard node's state. An excluded node cannot be active again."""
    if command.state is NodeState.ACTIVE and command.node_id in state.exclusions.node_ids:
        return Rejected(
            RejectionCode.NOT_ALLOWED, f"{command.node_id} is excluded from the cluster for ever"
        )
    decision = membership.decide_state(state.membership, command)
    return decision if isinstance(decision, Rejected) else Accepted(decision.events)


def decide_broker_report(state: ClusterState, broker: Broker) -> Accepted[ClusterEvent] | Rejected:
    """Record a broker's session. If it ends an earlier one, free the leases of that."""
    recorded = broker_directory.decide(state.directory, RecordBroker(broker))
    if isinstance(recorded, Rejected):
        return recorded
    if not recorded.events:
        return Accepted(())
    known = state.directory.brokers.get(broker.broker_id)
    released: tuple[LedgerEvent, ...] = ()
    if known is not None and (known.session_id != broker.session_id or not broker.is_live):
        release = capacity_ledger.decide(
            state.ledger, ReleaseLeases(known.broker_id, known.session_id)
        )
        released = release.events if isinstance(release, Accepted) else ()
    # Free the leases first: the record that ends the session closes its account.
    return Accepted((*released, *recorded.events))


def decide_change_replicas(
    state: ClusterState, command: ChangeReplicas
) -> Accepted[ClusterEvent] | Rejected:
    """Add an operator's wish to the shard map. An added node must be a known shard node."""
    node = state.membership.nodes.get(command.node_id)
    if command.change is Change.ADD and (node is None or node.kind != SHARD_KIND):
        if node is None:
            return Rejected(
                RejectionCode.NOT_FOUND, f"no node {command.node_id} has ever joined the cluster"
            )
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"{command.node_id} is of kind {node.kind}: only shard nodes have replicas",
        )
    decision = replica_changes.decide_change(state.shard_map, command)
    return decision if isinstance(decision, Rejected) else Accepted(decision.events)


def decide_members_report(
    state: ClusterState, command: TakeMembers
) -> Accepted[ClusterEvent] | Rejected:
    """Update the shard map to the members that a shard's leader reports."""
    shard_nodes = state.membership.of_kind(SHARD_KIND)
    strangers = {*command.voters, *command.learners} - set(shard_nodes)
    if strangers:
        return Rejected(
            RejectionCode.NOT_FOUND,
            f"shard {command.shard_id} reports {min(strangers)!r}, which is no shard node",
        )
    decision = replica_changes.decide_members(state.shard_map, command)
    return decision if isinstance(decision, Rejected) else Accepted(decision.events)


def decide_set_quotas(state: ClusterState, command: SetQuotas) -> Accepted[ClusterEvent] | Rejected:
    """Set quotas that fit the capacities of the brokers in the directory."""
    decision = quotas.decide(state.quotas, command, state.directory)
    return decision if isinstance(decision, Rejected) else Accepted(decision.events)


def decide_set_configuration(
    state: ClusterState, command: SetConfiguration
) -> Accepted[ClusterEvent] | Rejected:
    """Set overrides of service-level settings."""
    decision = configuration.decide(state.configuration, command)
    return decision if isinstance(decision, Rejected) else Accepted(decision.events)


def decide_exclude(state: ClusterState, command: ExcludeNode) -> Accepted[ClusterEvent] | Rejected:
    """Exclude a node."""
    decision = exclusions.decide(state.exclusions, command)
    return decision if isinstance(decision, Rejected) else Accepted(decision.events)


def decide_plan_slots(
    state: ClusterState, command: PlanSlots, context: PlanContext
) -> Accepted[ClusterEvent] | Rejected:
    """Make a plan of moves of slots. Shards come and go in the same record."""
    decision = planning.decide_plan(
        state.plans, state.slot_moves, state.shard_map, state.ledger, command, context
    )
    return decision if isinstance(decision, Rejected) else Accepted(decision.events)


def decide_begin_move(state: ClusterState, command: PlanMove) -> Accepted[ClusterEvent] | Rejected:
    """Begin a move of slots."""
    decision = moves.decide_plan(state.slot_moves, state.shard_map, command)
    return decision if isinstance(decision, Rejected) else Accepted(decision.events)


def decide_move_report(
    state: ClusterState, command: TakeMoveReport
) -> Accepted[ClusterEvent] | Rejected:
    """Take a shard's report of a move. An adoption changes the map and both leases with it; the end
    of a move that is taken back gives the map another version."""
    shard_map = state.shard_map
    map_version = shard_map.version + 1 if shard_map is not None else 0
    if command.report is Report.UNRECORDED:
        for shard_id in (command.from_shard, command.to_shard):
            if shard_map is None or shard_map.placement(shard_id) is None:
                absent = f"move {command.move_id}: there is no shard {shard_id} in the map"
                return Rejected(RejectionCode.NOT_FOUND, absent)
    decision = moves.decide_report(state.slot_moves, command, map_version)
    if isinstance(decision, Rejected):
        return decision
    events: tuple[ClusterEvent, ...] = decision.events
    for changed in decision.events:
        if changed.move.phase is MovePhase.ADOPTED:
            assert shard_map is not None, "slots moved without a map"
            owners = adoption.owners_changed(shard_map, changed.move)
            leases = adoption.leases_transferred(state.ledger, changed.move, command.session_units)
            events = (owners, *leases, changed)
        elif changed.move.phase is MovePhase.TAKEN_BACK:
            assert shard_map is not None, "slots moved without a map"
            # Who was sent on to the other shard forgets that with the next version.
            events = (ShardChanged(map_version), changed)
        elif changed.move.phase is MovePhase.REFUSED:
            events = (changed, *_plan_stopped(state, changed))
    return Accepted(events)


def decide_stop_move(state: ClusterState, command: StopMove) -> Accepted[ClusterEvent] | Rejected:
    """Take a move back that has not been adopted. Its plan stops with it."""
    decision = moves.decide_stop(state.slot_moves, command)
    if isinstance(decision, Rejected):
        return decision
    events: tuple[ClusterEvent, ...] = decision.events
    for changed in decision.events:
        events += _plan_stopped(state, changed)
    return Accepted(events)


def _plan_stopped(state: ClusterState, changed: SlotMoveChanged) -> tuple[ClusterEvent, ...]:
    """Return what stops the plan of a move that fails: the next one would fail alike."""
    plan = state.plans.present
    move = changed.move
    if plan is None or plan.plan_id != move.plan_id:
        return ()
    reason = f"move {move.move_id} to shard {move.to_shard}: {move.reason}"
    decision = decide_stop_plan(fold_events(state, (changed,)), plan.plan_id, reason)
    return decision.events if isinstance(decision, Accepted) else ()


def decide_stop_plan(
    state: ClusterState, plan_id: int, reason: str
) -> Accepted[ClusterEvent] | Rejected:
    """Stop a plan, and take back its moves that have not been adopted."""
    decision = plans.decide_stop(state.plans, plan_id, reason)
    if isinstance(decision, Rejected):
        return decision
    events: list[ClusterEvent] = []
    for changed in decision.events:
        events.append(changed)
        for move in state.slot_moves.under_way:
            if move.plan_id == changed.plan.plan_id and move.phase is MovePhase.PLANNED:
                stop = moves.decide_stop(state.slot_moves, StopMove(move.move_id, reason))
                assert isinstance(stop, Accepted), "a planned move can be stopped"
                events.extend(stop.events)
    return Accepted(tuple(events))


def evolve(state: ClusterState, event: ClusterEvent) -> ClusterState:
    """Return the state after ``event``."""
    match event:
        case NodeRegistered() | NodeStateSet():
            return replace(state, membership=membership.evolve(state.membership, event))
        case ShardMapChanged() | ShardChanged():
            return replace(state, shard_map=shard_map.evolve(state.shard_map, event))
        case BrokerRecorded():
            directory = broker_directory.evolve(state.directory, event)
            ledger = capacity_ledger.evolve(state.ledger, event)
            return replace(state, directory=directory, ledger=ledger)
        case LookupWindowRecorded():
            return replace(state, lookup_reports=lookup_reports.evolve(state.lookup_reports, event))
        case QuotasSet():
            ledger = capacity_ledger.evolve(state.ledger, event)
            return replace(state, quotas=quotas.evolve(state.quotas, event), ledger=ledger)
        case ConfigurationSet():
            return replace(state, configuration=configuration.evolve(state.configuration, event))
        case NodeExcluded():
            return replace(state, exclusions=exclusions.evolve(state.exclusions, event))
        case PlanChanged():
            return replace(state, plans=plans.evolve(state.plans, event))
        case SlotMoveChanged():
            return replace(state, slot_moves=moves.evolve(state.slot_moves, event))
        case _:
            return replace(state, ledger=capacity_ledger.evolve(state.ledger, event))


def fold_events(state: ClusterState, events: Iterable[ClusterEvent]) -> ClusterState:
    """Return the state after ``events``, applied in order."""
    return reduce(evolve, events, state)
