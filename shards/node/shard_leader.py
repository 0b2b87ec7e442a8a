"""Everything that exists only while this replica leads its shard: one object per term.

Created when the replica's role becomes LEADER and closed when it is lost. Nothing is reused in a
later term, so nothing has to be reset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from nextgen.client.routing.write_admission import DEFAULT_BOUNDS, WriteAdmission, WriteBounds
from nextgen.kernel.errors import NotLeader, StaleShardMap
from nextgen.kernel.limits.scalable import SCALABLE_CONSUMER_GRACE_MS
from nextgen.kernel.limits.snapshot import QUIESCE_MS_MAX
from nextgen.kernel.routing.slots import SlotTable
from nextgen.replication.ports import ReplicatedLog
from nextgen.tasks.background import start
from protos.nextgen.v1.shard_service_pb2 import FollowRequest
from shards.assignment.broker_sync import BrokerSync
from shards.assignment.lease_keeper import LeaseKeeper
from shards.assignment.placement_policies import PlacementPolicies
from shards.assignment.shard_units import ShardUnits
from shards.assignment.tenant_quotas import TenantQuotas
from shards.assignment.topic_controller import TopicController
from shards.assignment.unit_placer import UnitPlacer
from shards.assignment.unit_planner import UnitPlanner
from shards.domain.assignment import REASON_RENAMED, REASON_TOPIC_DELETED, Assignment
from shards.domain.slot_moves.keys import is_at_home_in, is_of_slots
from shards.domain.slots.events import SlotRanges
from shards.inventory.service import InventoryService
from shards.metrics import ShardMetrics
from shards.moves.balance_plans import BalancePlans
from shards.moves.balancer import Balancer
from shards.moves.evacuation import Evacuation
from shards.moves.evacuation_pace import NodeEvacuations
from shards.moves.handover import Handover
from shards.moves.move_finisher import MoveFinisher
from shards.moves.move_target import MoveTargets
from shards.moves.paced_moves import MovedUnits, PacedMoves
from shards.moves.rebalancer import Rebalancer
from shards.moves.topic_mover import TopicMover
from shards.moves.unit_unassigner import UnitUnassigner
from shards.ports import (
    BrokerDirectory,
    BrokerManagers,
    CapacitySource,
    Clock,
    HomeShards,
    MetadataReader,
    Quotas,
    SegmentBrokers,
    SessionReports,
    ShadowDirectory,
    TopicControllers,
)
from shards.projections.rows import Query
from shards.scalable.consumer_grace import ConsumerGrace
from shards.scalable.controller import ScalableController
from shards.scalable.drained_marks import DrainedMarks
from shards.scalable.scaling.segment_loads import SegmentLoads
from shards.scalable.segment_removal import SegmentRemoval
from shards.scalable.topic_work import WorkDependencies
from shards.sessions.broker_drains import BrokerDrains
from shards.sessions.broker_manager import BrokerManager
from shards.sessions.forwarding.drained_forwarding import DrainedForwarding
from shards.sessions.forwarding.idle_forwarding import IdleForwarding
from shards.sessions.forwarding.load_forwarding import LoadForwarding
from shards.sessions.metadata_watch import MetadataWatch
from shards.slots.ports import NoSlotMoves, SlotMoves
from shards.slots.slot_keeper import SlotKeeper
from shards.slots.slot_source import SlotSource
from shards.state.measured_log import MeasuredLog
from shards.state.shard_state import ShardState
from shards.state.state_cache import StateRoom
from shards.watches.effective_writes import EffectiveWrites
from shards.watches.expecting_managers import ExpectingManagers
from shards.watches.returning_managers import ManagerRollCall
from shards.watches.subscriber_ids import broker_manager_id


@dataclass(frozen=True, slots=True)
class LeaderDependencies:
    """The dependencies of a leader outside its shard; the same for all shards of a node."""

    node_id: str
    directory: BrokerDirectory
    managers: BrokerManagers
    controllers: TopicControllers
    capacity: CapacitySource
    quotas: Quotas
    metadata: MetadataReader
    tenancy: MetadataReader
    """Reads tenants and namespaces for topic controllers, all of the node together."""
    homes: HomeShards
    controllers_id: str
    """The subscriber id of all topic controllers of the node: see ``subscriber_ids``."""
    parents: ShadowDirectory
    reports: SessionReports
    segments: SegmentBrokers
    clock: Clock
    entropy: Callable[[int], bytes]
    """Returns the given number of random bytes."""
    draw: Callable[[], tuple[int, int]]
    """Returns two random numbers for a placement."""
    write_bounds: WriteBounds = DEFAULT_BOUNDS
    consumer_grace_ms: int = SCALABLE_CONSUMER_GRACE_MS
    """How long a registered consumer of a scalable topic may be without a connection."""
    balance: BalancePlans | None = None
    """The plans of this node; without them, brokers are evened out on request only."""

    slot_moves: SlotMoves = field(default_factory=NoSlotMoves)
    evacuations: NodeEvacuations = field(default_factory=NodeEvacuations)
    states: StateRoom = field(default_factory=StateRoom)
    """What the leaders of the node may keep in memory of their shards."""


class ShardLeader:
    """The services of one shard for one term of leadership."""

    def __init__(
        self,
        shard_id: int,
        term: int,
        log: ReplicatedLog,
        query: Query,
        dependencies: LeaderDependencies,
        metrics: ShardMetrics,
    ) -> None:
        self.shard_id = shard_id
        self.term = term
        self.metrics = metrics
        self._log = MeasuredLog(log, metrics.commit_latency, dependencies.clock.monotonic)
        self.state = ShardState(
            shard_id,
            term,
            self._log,
            query,
            dependencies.clock.wall_ms,
            dependencies.entropy,
            dependencies.clock.monotonic,
            dependencies.states.part,
        )
        self._states = dependencies.states
        self._make_brokers(dependencies)
        self._make_effective(dependencies, log)
        self.leases = LeaseKeeper(
            shard_id,
            term,
            dependencies.capacity,
            dependencies.directory,
            dependencies.quotas,
            self.state.reads.used_units,
            dependencies.clock,
            dependencies.parents.shard_ids,
            self.state.slots.outgoing,
        )
        sync = BrokerSync(
            shard_id,
            ExpectingManagers(
                self.state, dependencies.managers, self.effective, dependencies.homes
            ),
            dependencies.directory,
        )
        self.policies = PlacementPolicies(
            dependencies.controllers_id,
            dependencies.homes,
            dependencies.tenancy,
            dependencies.clock,
            self.state.proposer.confirm,
        )
        placer = UnitPlacer(
            self.state.reads,
            sync,
            self.leases,
            dependencies.directory,
            dependencies.clock,
            dependencies.draw,
        )
        self.units = ShardUnits(self.state, dependencies.directory)
        self.drained_marks = DrainedMarks(self.state)
        self.consumers = ConsumerGrace(
            self.state, dependencies.clock, grace_ms=dependencies.consumer_grace_ms
        )
        self._make_topics(dependencies, sync, placer)
        self._make_movers(dependencies, sync, placer)
        self._make_scalable(dependencies, sync)
        self._make_inventory(dependencies)
        self._make_slots(dependencies, query)

    def _make_slots(self, dependencies: LeaderDependencies, query: Query) -> None:
        """Create the services that move slots to other shards and from them."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.slot_source = SlotSource(
            self.state, query, is_busy=self._slots_busy, on_left=self._slots_left
        )
        self._slot_keeper = SlotKeeper(
            self.state,
            query,
            dependencies.slot_moves,
            dependencies.clock,
            on_coming=self._slots_coming,
            on_came=self._slots_came,
        )

    def _slots_busy(self, ranges: SlotRanges) -> bool:
        """Return whether units of these slots are in a move; begin none for a while."""
        is_of = partial(is_at_home_in, ranges)
        self.mover.hold(is_of, asyncio.get_running_loop().time() + QUIESCE_MS_MAX / 1_000)
        return self.mover.is_moving(is_of) or self._finisher.is_finishing(is_of)

    def _units_busy(self, topic_id: str) -> bool:
        """Return whether a unit of a topic is in a move, or may have to be released yet."""
        is_of = topic_id.__eq__
        return self.mover.is_moving(is_of) or self._finisher.is_finishing(is_of)

    def _slots_left(self, ranges: SlotRanges, to_shard: int) -> None:
        """Drop what is in memory of slots that are released in this step of the loop."""
        moved = StaleShardMap(
            f"shard {self.shard_id} gave these slots to shard {to_shard}",
            self.state.slots.map_version,
            moved_to=to_shard,
            moved_slots=ranges,
        )
        self.brokers.sessions.let_go(partial(is_of_slots, ranges), moved)
        self.scalable.let_go(partial(is_of_slots, ranges))

    def _slots_coming(self, ranges: SlotRanges) -> None:
        """Be the manager of brokers of these slots, whose adoption is proposed in this step: a
        broker that connects goes on with its session."""
        self.effective.slots_came(ranges)
        self.brokers.take_over(partial(is_of_slots, ranges))
        self.consumers.slots_coming(partial(is_of_slots, ranges))

    def _slots_came(self, _ranges: SlotRanges) -> None:
        """Go on with what is under way in slots whose adoption is committed, as a new leader."""
        start("slots_came", self._look_again(self.state.position), self._tasks)

    async def _look_again(self, position: int) -> None:
        await self.state.log.wait_position(position)
        self.scalable.look_again()
        self.consumers.look_again()

    def rehome(self) -> None:
        """Follow tenants, namespaces and topics at the shards that have them by the present map."""
        self.brokers.metadata.rehome()
        self.policies.rehome()

    def _make_scalable(self, dependencies: LeaderDependencies, sync: BrokerSync) -> None:
        """Create the service that carries on the changes of scalable topics."""
        removal = SegmentRemoval(
            self.state,
            self._finisher,
            dependencies.directory,
            dependencies.segments,
            self._note_deleted,
        )
        self.scalable = ScalableController(
            self.shard_id,
            WorkDependencies(
                self.state,
                self.topics,
                self.mover,
                self.unassigner,
                dependencies.segments,
                removal,
                dependencies.clock,
                self.metrics,
                self.policies,
                dependencies.directory,
                sync.has_ended,
            ),
        )
        scaler = self.scalable.scaler
        self.consumers.on_removed = scaler.note
        self.policies.on_changed = scaler.note_namespace
        self.unassigner.on_unassigned = scaler.ownerless.note
        self.segment_loads = SegmentLoads(
            self.state, self.policies, dependencies.directory.settings, self.metrics, scaler.note
        )

    def _make_topics(
        self, dependencies: LeaderDependencies, sync: BrokerSync, placer: UnitPlacer
    ) -> None:
        """Create the services that look up and assign units."""
        quotas = TenantQuotas(
            self.shard_id, self.state.reads, dependencies.quotas, dependencies.parents.shard_ids
        )
        planner = UnitPlanner(
            self.state,
            self.units,
            sync,
            placer,
            self.policies,
            quotas,
            dependencies.clock,
            self.metrics,
        )
        self.topics = TopicController(
            self.shard_id,
            self.state.proposer,
            self.units,
            planner,
            sync,
            self.leases,
            placer,
            self.policies,
            dependencies.clock,
            self.metrics,
        )

    def _note_deleted(self, namespace: str) -> None:
        self.inventory.note_deleted(namespace)

    def _make_inventory(self, dependencies: LeaderDependencies) -> None:
        """Create the service that decides on tenants, namespaces and topics."""
        self.inventory = InventoryService(
            self.state,
            dependencies.parents,
            on_unassigned=self._release_deleted,
            on_scalable=self.scalable.resume,
            policies=self.policies,
            brokers=dependencies.directory,
            assign_ahead=self.topics.assign_ahead,
            is_busy=self._units_busy,
            on_ended=partial(self.unassigner.release, reason=REASON_RENAMED),
            admission=WriteAdmission(
                self.shard_id, self.metrics.write_refusals, dependencies.write_bounds
            ),
        )

    def _make_brokers(self, dependencies: LeaderDependencies) -> None:
        """Create the services for the brokers whose manager is in this shard."""
        watch = MetadataWatch(
            broker_manager_id(dependencies.node_id, self.shard_id, self.term),
            dependencies.homes,
            dependencies.metadata,
            dependencies.clock,
            self.metrics.metadata_delivered,
            self.metrics.metadata_was_refused,
        )
        self.brokers = BrokerManager(
            self.shard_id,
            self.state,
            dependencies.metadata,
            watch,
            dependencies.reports,
            dependencies.clock,
        )
        self.brokers.sessions.loads.on_refused = self.metrics.loads_refused.inc
        self.drains = BrokerDrains(
            self.shard_id,
            self.state,
            self.brokers.sessions,
            dependencies.directory,
            dependencies.clock,
        )
        self._idle = IdleForwarding(
            self.shard_id, self.brokers.sessions, dependencies.homes, dependencies.controllers
        )
        self._drained = DrainedForwarding(
            self.shard_id, self.brokers.sessions, dependencies.homes, dependencies.controllers
        )
        self._loads = LoadForwarding(
            self.shard_id, self.brokers.sessions, dependencies.homes, dependencies.controllers
        )

    def _make_effective(self, dependencies: LeaderDependencies, log: ReplicatedLog) -> None:
        """Create the services that find out which writes are effective."""
        self.effective = EffectiveWrites(self.shard_id, log, dependencies.clock)
        self._roll_call = ManagerRollCall(
            FollowRequest(
                home_shard_id=self.shard_id, term=self.term, node_id=dependencies.node_id
            ),
            dependencies.managers,
            self.effective,
            dependencies.parents.shard_ids,
            dependencies.clock.monotonic,
        )

    def _release_deleted(self, ended: Sequence[Assignment]) -> None:
        owned = sum(each.is_assigned for each in ended)
        self.metrics.note_unassigned(REASON_TOPIC_DELETED, owned)
        self._finisher.release_deleted(ended)

    def _make_movers(
        self, dependencies: LeaderDependencies, sync: BrokerSync, placer: UnitPlacer
    ) -> None:
        """Create the services that move and unassign units."""
        proposer = self.state.proposer
        self._finisher = MoveFinisher(
            self.shard_id, self.state, self.units, sync, self.effective, dependencies.directory
        )
        self.unassigner = UnitUnassigner(
            self.shard_id, proposer, self.units, self._finisher, self.metrics
        )
        targets = MoveTargets(placer, self.policies)
        handover = Handover(
            self.shard_id,
            proposer,
            self.units,
            sync,
            targets,
            self._finisher,
            dependencies.clock,
            self.metrics,
        )
        self.mover = TopicMover(self.shard_id, self.state, self.units, targets, handover)
        self.evacuation = Evacuation(
            self.shard_id,
            self.state,
            self.units.reads,
            self.topics,
            self.mover,
            sync,
            dependencies.directory,
            dependencies.parents.shard_ids,
            dependencies.clock,
            self.metrics,
            dependencies.evacuations,
            self.leases.excess,
        )
        moved = MovedUnits(dependencies.clock)
        self._finisher.on_recent = moved.restore
        self.moves = PacedMoves(self.shard_id, self.mover, moved, dependencies.clock, self.metrics)
        self.rebalancer = Rebalancer(
            self.shard_id,
            self.state,
            self.moves,
            placer,
            self.policies,
            self.evacuation,
            dependencies.directory,
            dependencies.parents.shard_ids,
            dependencies.clock,
        )
        self._balancer: Balancer | None = None
        if dependencies.balance is not None:
            self._balancer = Balancer(
                self.shard_id,
                self.state,
                self.units.reads,
                self.moves,
                dependencies.balance,
                self.evacuation,
                self.rebalancer,
                dependencies.directory,
                dependencies.clock,
                self.metrics,
            )

    def __repr__(self) -> str:
        return f"<ShardLeader shard={self.shard_id} term={self.term} {self.topics!r}>"

    def start(self, table: SlotTable) -> None:
        """Take over the shard's brokers and leases. The first leader of all adopts the slots that
        the map gives the shard before it does anything else."""
        self._states.enter(self)
        self.state.adopt_first_slots(table.ranges_of(self.shard_id), table.version)
        self.brokers.start()
        self._roll_call.start()
        self.leases.start()
        self._finisher.recover(self._log)
        self.evacuation.start()
        self.consumers.start()
        self.scalable.start()
        self._slot_keeper.start()

    def close(self, leader_hint: str | None) -> None:
        """End the term: pending requests fail with ``NotLeader`` and ``leader_hint``."""
        error = NotLeader(self.shard_id, leader_hint)
        self.state.term.end()
        self._states.leave(self)
        self._slot_keeper.close()
        for task in self._tasks:
            task.cancel()
        self._roll_call.close()
        self.scalable.close()
        self.evacuation.close()
        self.consumers.close()
        if self._balancer is not None:
            self._balancer.close()
        self.rebalancer.close()
        self.inventory.close()
        self.units.tasks.close(error)
        self.policies.close()
        self.drains.close()
        self._idle.close()
        self._drained.close()
        self._loads.close()
        self.brokers.close(error)
        self.effective.close(error)
        self.leases.close()
        self._log.close()
