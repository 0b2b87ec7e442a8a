"""What the cluster manager does while this replica leads group 0: one instance per term.

Two folds of the same events are kept. *Pending* includes proposed events; decisions read it.
*Committed* includes only committed events; nodes are sent it. Between reading pending and proposing
there is no await: that is the lock. When leadership moves, the instance is thrown away with its
pending state, so nothing ever has to be undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from cluster_manager import wire
from cluster_manager.domain import lookup_reports
from cluster_manager.domain.broker_directory import Broker
from cluster_manager.domain.cluster import (
    ClusterEvent,
    ClusterState,
    FirstMapPlan,
    decide_broker_report,
    decide_members_report,
    decide_register,
    decide_set_configuration,
    decide_set_quotas,
    fold_events,
)
from cluster_manager.domain.leader_spread import Transfer
from cluster_manager.domain.lookup_reports import RecordLookupWindow
from cluster_manager.domain.membership import (
    MEMBER_KINDS,
    SHARD_KIND,
    Node,
    NodeRegistered,
)
from cluster_manager.domain.shard_map import ShardMap, decide_led
from cluster_manager.domain.slot_moves.planning import PlanContext
from cluster_manager.ports import Clock
from cluster_manager.service.connected_nodes import ConnectedNodes
from cluster_manager.service.connection import NodeConnection
from cluster_manager.service.event_levels import known_form, level_of, not_known
from cluster_manager.service.load_board import LoadBoard
from cluster_manager.service.slots.auto_sizer import AutoSizer
from cluster_manager.service.slots.slot_mover import SlotMover
from cluster_manager.service.soft_state import LeaderEndpoint, LeaderEndpoints
from cluster_manager.service.spreader import LeaderSpreader, Situation
from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    NotLeader,
    Overloaded,
    Refused,
    Unavailable,
)
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.events.levels import EVENT_LEVEL_UNREPORTED
from nextgen.kernel.governance.lookup_slo import LookupWindow
from nextgen.kernel.limits.cluster import (
    ADDRESS_BYTES_MAX,
    JOIN_STREAMS_MAX,
    NODE_ID_BYTES_MAX,
)
from nextgen.kernel.routing.slots import FIRST_VERSION
from nextgen.replication.ports import CLUSTER_MANAGER_GROUP_ID, Commit, Entry, ReplicatedLog
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb

UpdateListener = Callable[[cluster_pb.ClusterUpdate], None]

_logger = structlog.get_logger(__name__)


class LeaderTerm:
    """Decides, proposes, and pushes what was committed to every connected node."""

    def __init__(
        self,
        *,
        term: int,
        state: ClusterState,
        applied_index: int,
        log: ReplicatedLog,
        clock: Clock,
        plan: FirstMapPlan,
        manager_endpoints: Sequence[str],
        on_update: UpdateListener,
    ) -> None:
        self.term = term
        self.pending = state
        self.committed = state
        self._committed_index = applied_index
        self._log = log
        self._clock = clock
        self._plan = plan
        self._manager_endpoints = tuple(manager_endpoints)
        self._endpoints = LeaderEndpoints()
        self._proposed: asyncio.Future[Commit] | None = None
        self._is_over = False
        self._spreader = LeaderSpreader(clock, self._situation, self._send_transfer)
        self._nodes = ConnectedNodes(
            clock, on_update, whole_map=self._whole_map, on_silent=self._spreader.look
        )
        self.loads = LoadBoard(
            clock, lambda: self.pending.directory, self._nodes.push_to_shard_nodes
        )
        self.slot_mover = SlotMover(self, clock)
        self._auto_sizer = AutoSizer(self, self.slot_mover.sizes, clock, plan.shards)
        on_update(self.full_update())

    def __repr__(self) -> str:
        return (
            f"<LeaderTerm term={self.term} nodes={len(self.connections)} "
            f"committed_index={self._committed_index}>"
        )

    @property
    def connections(self) -> Mapping[str, NodeConnection]:
        """The connected nodes by id."""
        return self._nodes.connections

    @property
    def endpoints(self) -> LeaderEndpoints:
        return self._endpoints

    def led_shards(self) -> Mapping[int, str]:
        """Return the leading node of each shard that is known to have a leader."""
        return {endpoint.shard_id: endpoint.node_id for endpoint in self._endpoints.all()}

    def plan_context(self) -> PlanContext:
        """Return what a plan of moves of slots depends on besides the state."""
        active = self.pending.membership.active_shard_nodes()
        node_ids = self._nodes.shard_nodes().intersection(active)
        node_ids -= self.pending.exclusions.node_ids
        nodes = self.pending.membership.nodes
        zones = {node_id: nodes[node_id].zone for node_id in node_ids}
        now_ms = self._clock.unix_ms()
        sizes = self.slot_mover.sizes
        return PlanContext(
            node_ids,
            self._plan.replication_factor,
            now_ms,
            zones,
            rows=sizes.rows(),
            disk_free=sizes.disk_free(),
        )

    def propose(self, events: Sequence[ClusterEvent]) -> asyncio.Future[Commit]:
        """Propose one decision's events and return the future of their commit.

        Raises:
            NotLeader, Overloaded: At once; nothing was proposed.
            Refused: At once; nothing was proposed. A replica is not known to know such an event,
                see ``ReplicatedLog.event_level``.
        """
        # This replica may lead again already, in a later term with another state.
        if self._is_over:
            raise NotLeader(CLUSTER_MANAGER_GROUP_ID)
        events = known_form(events, self.pending.shard_map, self._log.event_level)
        self.check_known(events)
        commit = self._log.propose(wire.record_of(events, self._clock.unix_ms()))
        self.pending = fold_events(self.pending, events)
        self._proposed = commit
        # If a caller is cancelled, the proposal continues: later decisions build on it.
        waiting = asyncio.shield(commit)
        # Mark failures as retrieved: no task may be awaiting these futures any more.
        for future in (commit, waiting):
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return waiting

    async def confirm(self) -> None:
        """Return once all pending events are committed and a majority confirmed leadership.

        Call it before answering from ``pending`` without a proposal.

        Raises:
            NotLeader, ProposalLost: Leadership moved.
        """
        if self._proposed is not None:
            await asyncio.shield(self._proposed)
        await self._log.read_index()

    def committed_entries(self, entries: Sequence[Entry]) -> None:
        """Fold committed entries and push them; skip those that the loaded view contained."""
        events: list[ClusterEvent] = []
        for entry in entries:
            if entry.index > self._committed_index:
                events.extend(wire.events_of_entry(entry))
                self._committed_index = entry.index
        if not events:
            return
        before = self.committed
        map_before = before.shard_map
        self.committed = fold_events(before, events)
        update = wire.delta_update(events, map_before, self.committed.shard_map)
        if update is not None:
            self._nodes.push_to_all(update)
        if self.committed.shard_map is not map_before:
            self._spreader.look()
        self.slot_mover.committed(before)

    def full_update(self, known_map_version: int = 0) -> cluster_pb.ClusterUpdate:
        """Return the whole committed state, and every known leader: see ``wire.full_update``."""
        leaders = map(_leader_report, self._endpoints.all())
        return wire.full_update(self.committed, leaders, self._manager_endpoints, known_map_version)

    # Nodes ------------------------------------------------------------------------------------

    def join(self, hello: cluster_pb.Hello) -> NodeConnection:
        """Register the node and connect it: its outbox begins with the full update.

        An older connection of the same node is ended: the node has abandoned it.

        Raises:
            Refused: The node cannot be a member of that kind, or with that address.
            Overloaded: Too many nodes, or the log accepts no proposal at the moment.
        """
        node_id = hello.node_id
        if not 0 < len(node_id.encode()) <= NODE_ID_BYTES_MAX or not node_id.isprintable():
            raise InvalidRequest(f"a node joins with an id of 1 to {NODE_ID_BYTES_MAX} bytes")
        connections = self._nodes.connections
        if node_id not in connections and len(connections) >= JOIN_STREAMS_MAX:
            raise Overloaded(f"{JOIN_STREAMS_MAX} nodes are connected, no more are accepted")
        if hello.kind in MEMBER_KINDS:
            decision = decide_register(self.pending, self._node_of(hello), self._plan)
            if isinstance(decision, Rejected):
                raise Refused(decision.code, decision.message)
            if decision.events:
                self.propose(decision.events)
        connection = self._nodes.connect(hello)
        # Its map is sent again only if it has changed: nodes reconnect all at once.
        known_map_version = hello.shard_map_version if hello.takes_deltas else 0
        connection.push(self.full_update(known_map_version))
        if hello.kind == SHARD_KIND:
            for update in self.loads.updates():
                connection.push(update)
        _logger.info("node joined", node=hello.node_id, kind=hello.kind, term=self.term)
        self._spreader.look()
        return connection

    def leave(self, connection: NodeConnection) -> None:
        """Remove a connection whose stream has ended. Harmless if it was removed before."""
        if self._nodes.connections.get(connection.node_id) is connection:
            self._nodes.disconnect(connection, None)
            self._spreader.look()

    def heard(self, connection: NodeConnection) -> None:
        """Note that the node sent a message."""
        connection.heard_at_ms = self._clock.monotonic_ms()

    def report_leader(self, report: cluster_pb.LeaderReport) -> None:
        """Record a shard leader's report; push it to every connected node if it changes anything.

        Raises:
            InvalidRequest: There is no such shard.
        """
        shard_map = self.committed.shard_map
        placement = shard_map.placement(report.shard_id) if shard_map is not None else None
        if placement is None:
            raise InvalidRequest(f"shard {report.shard_id} is not in the shard map")
        if not report.grpc or len(report.grpc.encode()) > ADDRESS_BYTES_MAX:
            raise InvalidRequest(f"the leader of shard {report.shard_id} gives no usable address")
        endpoint = LeaderEndpoint(report.shard_id, report.term, report.node_id, report.grpc)
        if not self._endpoints.offer(endpoint, self._clock.monotonic_ms()):
            return
        _logger.info(
            "shard leader", shard=report.shard_id, shard_term=report.term, node=report.node_id
        )
        self._nodes.push_leader(_leader_report(endpoint))
        self._spreader.look()
        if not placement.has_led:
            self._record_led()
        self.slot_mover.look()

    def record_broker(self, broker: Broker) -> None:
        """Propose a broker's session if it changed; the commit is pushed to nodes.

        Raises:
            NotLeader, Overloaded: Nothing was recorded; the sender must repeat the report.
        """
        decision = decide_broker_report(self.pending, broker)
        if isinstance(decision, Rejected):
            _logger.info("broker report refused", broker=broker.broker_id, why=decision.message)
        elif decision.events:
            self.propose(decision.events)

    def record_window(self, window: LookupWindow) -> None:
        """Record a discovery process's minute of lookups, once.

        It is dropped while a replica of this group may not know this type of event.

        Raises:
            NotLeader, Overloaded: Nothing was recorded; the sender must repeat the report.
        """
        command = RecordLookupWindow(window, self._clock.unix_ms())
        decision = lookup_reports.decide(self.pending.lookup_reports, command)
        if isinstance(decision, Rejected):
            # A process repeats its last reports after each reconnect.
            is_known = decision.code is RejectionCode.ALREADY_EXISTS
            log = _logger.debug if is_known else _logger.warning
            log("window of lookups refused", node=window.node_id, why=decision.message)
            return
        try:
            self.propose(decision.events)
        except Refused as refused:
            _logger.debug("window of lookups dropped", node=window.node_id, why=str(refused))

    async def set_quotas(
        self, request: cluster_pb.SetQuotasRequest
    ) -> cluster_pb.SetQuotasResponse:
        """Set the quotas; return the present ones once that is committed.

        Raises:
            Refused: VERSION_MISMATCH: the caller knew other quotas; or the quotas are invalid.
            NotLeader, Overloaded, ProposalLost: See ``propose``.
        """
        quotas = wire.set_quotas_from_proto(request)
        await self.commit_decision(
            decide_set_quotas(self.pending, quotas),
            "quotas change",
            version=quotas.quotas.version,
            brokers=len(quotas.quotas.brokers),
            tenants=len(quotas.quotas.tenants),
        )
        return cluster_pb.SetQuotasResponse(quotas=wire.quotas_to_proto(quotas.quotas))

    async def set_configuration(
        self, request: cluster_pb.SetConfigurationRequest
    ) -> cluster_pb.SetConfigurationResponse:
        """Set the overrides of settings; return the present ones once that is committed.

        Raises:
            Refused: VERSION_MISMATCH: the caller knew others; NOT_FOUND: a name is no setting;
                NOT_ALLOWED: a value makes no sense. The message names the setting.
            NotLeader, Overloaded, ProposalLost: See ``propose``.
        """
        command = wire.set_configuration_from_proto(request)
        configuration = command.configuration
        await self.commit_decision(
            decide_set_configuration(self.pending, command),
            "configuration changes",
            version=configuration.version,
            settings=dict(configuration.settings),
        )
        present = wire.configuration_to_proto(configuration)
        return cluster_pb.SetConfigurationResponse(configuration=present)

    def take_members(self, report: cluster_pb.MembersReport) -> None:
        """Update the map to a shard leader's report of its members.

        Raises:
            NotLeader, Overloaded: Nothing was recorded; the sender must repeat the report.
        """
        decision = decide_members_report(self.pending, wire.members_from_proto(report))
        if isinstance(decision, Rejected):
            _logger.info("members report refused", shard=report.shard_id, why=decision.message)
        elif decision.events:
            _logger.info(
                "shard members",
                shard=report.shard_id,
                voters=list(report.voters),
                configuration=report.configuration_index,
            )
            self.propose(decision.events)

    def take_sizes(self, node_id: str, report: cluster_pb.ShardSizes) -> None:
        """Take the sizes of the shards that a node leads."""
        shard_map = self.pending.shard_map
        if shard_map is not None:
            self.slot_mover.take_sizes(node_id, report, shard_map.shard_ids)

    def stop(self, error: MetadataError) -> None:
        """End the term, and every stream with ``error``."""
        self._is_over = True
        self._spreader.stop()
        self.slot_mover.stop()
        self._auto_sizer.stop()
        self.loads.stop()
        self._nodes.disconnect_all(error)

    def connected_shard_nodes(self) -> set[str]:
        """Return the ids of the connected shard nodes."""
        return self._nodes.shard_nodes()

    def check_every_shard_was_led(self) -> None:
        """Keep the first map until each of its shards has had a leader: see ``decide_led``.

        Raises:
            Unavailable: One has not had any.
        """
        shard_map = self.pending.shard_map
        if shard_map is None or shard_map.version > FIRST_VERSION:
            return
        unled = [each for each in shard_map.shard_ids if self._endpoints.get(each) is None]
        if unled:
            raise Unavailable(f"shard {unled[0]} has not been led yet: try again when it is")

    # Inside -----------------------------------------------------------------------------------

    async def commit_decision(
        self, decision: Accepted[ClusterEvent] | Rejected, what: str, **values: object
    ) -> None:
        """Return once what was decided, or what it was decided from, is committed.

        Raises:
            Refused: It was rejected.
            NotLeader, Overloaded, ProposalLost: See ``propose``.
        """
        if isinstance(decision, Rejected):
            await self.confirm()
            raise Refused(decision.code, decision.message)
        if decision.events:
            _logger.info(what, **values)
            self.propose(decision.events)
        await self.confirm()

    def _node_of(self, hello: cluster_pb.Hello) -> Node:
        """Return the node without its zone while a replica of this group would forget that."""
        node = wire.node_from_hello(hello)
        is_known = level_of([NodeRegistered(node)]) <= self._log.event_level
        return node if is_known else replace(node, zone="")

    def check_known(self, events: Sequence[ClusterEvent]) -> None:
        """Refuse an event that would stop a replica of this group, which may not know its type."""
        level = level_of(events)
        if level > EVENT_LEVEL_UNREPORTED and level > self._log.event_level:
            raise not_known(events, self._log.event_level, self._log.behind_event_level(level))

    def _whole_map(self) -> ShardMap:
        assert self.committed.shard_map is not None, "a difference was committed without a map"
        return self.committed.shard_map

    def _situation(self) -> Situation:
        shard_map = self.committed.shard_map
        placements = shard_map.placements if shard_map is not None else ()
        return placements, self._endpoints.leaderships(), self._nodes.shard_nodes()

    def _record_led(self) -> None:
        led = [endpoint.shard_id for endpoint in self._endpoints.all()]
        decision = decide_led(self.pending.shard_map, led)
        if not decision.events:
            return
        try:
            self.propose(decision.events)
        except MetadataError as error:
            # The next report of a leader, to this or the next leader, tries again.
            _logger.info("shards that have led are not recorded", why=str(error))

    def _send_transfer(self, transfer: Transfer) -> None:
        connection = self._nodes.connections.get(transfer.leader)
        if connection is None:
            return
        _logger.info(
            "spreading leaders",
            shard=transfer.shard_id,
            leader=transfer.leader,
            target=transfer.target,
        )
        wish = cluster_pb.LeadershipTransfer(shard_id=transfer.shard_id, target=transfer.target)
        connection.push(cluster_pb.ClusterUpdate(transfers=[wish]))


def _leader_report(endpoint: LeaderEndpoint) -> cluster_pb.LeaderReport:
    return cluster_pb.LeaderReport(
        shard_id=endpoint.shard_id,
        term=endpoint.term,
        node_id=endpoint.node_id,
        grpc=endpoint.grpc,
    )
