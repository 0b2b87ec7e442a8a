"""One replica of the cluster manager: follows its role in group 0 and serves while it leads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import structlog

from cluster_manager import wire
from cluster_manager.domain.cluster import FirstMapPlan
from cluster_manager.domain.membership import DISCOVERY_KIND, SHARD_KIND
from cluster_manager.ports import Clock, Grantor, View
from cluster_manager.service.connection import NodeConnection
from cluster_manager.service.exclusion import exclude_node
from cluster_manager.service.grant_allocator import GrantAllocator
from cluster_manager.service.leader_term import LeaderTerm, UpdateListener
from cluster_manager.service.lease_allocator import LeaseAllocator
from cluster_manager.service.plan_requests import get_plans, plan_slots, stop_plan
from cluster_manager.service.replica_balancer import ReplicaBalancer
from cluster_manager.service.replica_wishes import (
    balance_replicas,
    change_replicas,
    replica_plan,
    set_node_state,
)
from nextgen.client.wire.lookup_windows import window_from_proto
from nextgen.kernel.errors import (
    DeadlineExceeded,
    InvalidRequest,
    MetadataError,
    NotLeader,
    TransferFailed,
    WrongCluster,
)
from nextgen.kernel.governance.lookup_slo import LookupWindow
from nextgen.replication.ports import (
    CLUSTER_MANAGER_GROUP_ID,
    Entry,
    LogStatus,
    NodeId,
    ReplicatedLog,
    Role,
    RoleChange,
)
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1.events_pb2 import LookupWindowRecorded

CONFIRM_MS_MAX = 2_000
"""Time-out for confirming leadership, which takes one round trip to a majority."""

HAND_OVER_MS_MAX = 3_000
"""Time-out for handing leadership over at a stop. After that the others elect by themselves."""

Answer = TypeVar("Answer")

_logger = structlog.get_logger(__name__)


class ClusterManager:
    """The service behind the process's gRPC calls. Everything runs on one event loop."""

    def __init__(
        self,
        *,
        node_id: str,
        cluster_id: str,
        endpoints: Mapping[str, str],
        plan: FirstMapPlan,
        log: ReplicatedLog,
        view: View,
        grantor: Grantor,
        clock: Clock,
        on_update: UpdateListener,
    ) -> None:
        """``endpoints`` has the gRPC address of every replica, by node id. ``on_update`` gets the
        updates that every connected node gets, beginning with a full update in each term."""
        self.node_id = node_id
        self._cluster_id = cluster_id
        self._endpoints = dict(endpoints)
        self._plan = plan
        self._log = log
        self._view = view
        self._grantor = grantor
        self._clock = clock
        self._on_update = on_update
        self._leader_term: LeaderTerm | None = None
        self._grants: GrantAllocator | None = None
        self._leases: LeaseAllocator | None = None
        self._balancer: ReplicaBalancer | None = None
        self._leader_id: NodeId | None = None
        self._successor: NodeId | None = None
        self._unsubscribe: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<ClusterManager {self.node_id} {self._leader_term or 'not leading'}>"

    def start(self) -> None:
        """Begin to follow the log."""
        self._unsubscribe = [
            self._log.on_commit(self._on_commit),
            self._log.on_role_change(self._on_role_change),
        ]

    def stop(self) -> None:
        """End every stream. The caller that opened the log closes it."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []
        self._end_term()

    async def hand_over(self) -> None:
        """Hand leadership to another replica, if this one leads and another accepts it.

        The next replica by id is tried first, so that a rolling restart does not return leadership
        to the replica that restarted just before.
        """

        async def transfer(target: NodeId) -> bool:
            # Streams end when this replica steps down, before it learns of the election.
            self._successor = target
            try:
                async with timeout(HAND_OVER_MS_MAX / 1_000 / len(others)):
                    await self._log.transfer_leadership(target)
            except (TimeoutError, TransferFailed) as error:
                _logger.warning("leadership not handed over", target=target, why=str(error))
                return False
            return True

        members = sorted(self._log.status.members)
        place = members.index(NodeId(self.node_id)) if self.node_id in members else 0
        others = [*members[place + 1 :], *members[:place]]
        for target in others:
            if not self._log.is_leader:
                return
            try:
                if await transfer(target):
                    return
            except NotLeader:
                return

    # Requests ---------------------------------------------------------------------------------

    @property
    def leader_term(self) -> LeaderTerm | None:
        """The term of leadership, None while another replica leads."""
        return self._leader_term

    @property
    def balancer(self) -> ReplicaBalancer | None:
        """Who places replicas in this term, None while another replica leads."""
        return self._balancer

    @property
    def log(self) -> ReplicatedLog:
        return self._log

    @property
    def has_leader(self) -> bool:
        """Whether this replica leads or knows the leader."""
        return self._leader_term is not None or self._leader_id is not None

    def not_leader(self) -> NotLeader:
        """Return the error that sends a caller to the leader, if it is known."""
        leader = self._leader_id or self._successor
        if leader == self.node_id:
            leader = self._successor
        hint = self._endpoints.get(leader) if leader else None
        return NotLeader(CLUSTER_MANAGER_GROUP_ID, hint)

    async def join(self, hello: cluster_pb.Hello) -> NodeConnection:
        """Connect a node; the full update is the first in its outbox.

        Raises:
            NotLeader: Try the replica that it names.
            WrongCluster: The node belongs to another cluster.
            Refused, InvalidRequest, Overloaded: See ``LeaderTerm.join``.
            DeadlineExceeded: No majority confirmed that this replica leads.
        """
        if hello.cluster_id != self._cluster_id:
            raise WrongCluster(
                f"node {hello.node_id} belongs to cluster {hello.cluster_id!r}, this is "
                f"{self._cluster_id!r}: check the node's cluster id and its manager addresses"
            )
        leader_term = await self._confirmed_term()
        return leader_term.join(hello)

    def receive(self, connection: NodeConnection, message: cluster_pb.NodeMessage) -> None:
        """Handle one message of a connected node.

        Raises:
            InvalidRequest: The message is invalid; the caller must end the stream.
            Overloaded, NotLeader: The message is lost. The node must reconnect and repeat it.
        """
        leader_term = self._leader_term
        if leader_term is None or connection.has_ended:
            return
        leader_term.heard(connection)
        match message.WhichOneof("body"):
            case "heartbeat":
                echo = cluster_pb.ClusterUpdate(heartbeat_sequence=message.heartbeat.sequence)
                connection.push(echo)
            case "window":
                window = _reported_window(connection, message.window)
                if window is not None:
                    leader_term.record_window(window)
            case "hello":
                raise InvalidRequest("a second hello on one stream")
            case _:
                self._take_report(leader_term, connection, message)

    def _take_report(
        self, leader_term: LeaderTerm, connection: NodeConnection, message: cluster_pb.NodeMessage
    ) -> None:
        """Handle a message that only a shard node may send; raises as ``receive``."""
        match message.WhichOneof("body"):
            case "leader":
                _check_may_report(connection)
                if message.leader.node_id != connection.node_id:
                    raise InvalidRequest(
                        f"node {connection.node_id} reports {message.leader.node_id} as leader"
                    )
                leader_term.report_leader(message.leader)
                if self._grants is not None:
                    self._grants.check_sessions(message.leader.shard_id)
            case "broker":
                _check_may_report(connection)
                leader_term.record_broker(wire.broker_from_proto(message.broker.broker))
            case "members":
                _check_may_report(connection)
                leader_term.take_members(message.members)
            case "load":
                _check_may_report(connection)
                leader_term.loads.take(message.load)
            case "slot_move":
                _check_may_report(connection)
                leader_term.slot_mover.take_report(connection, message.slot_move)
            case "shard_sizes":
                _check_may_report(connection)
                leader_term.take_sizes(connection.node_id, message.shard_sizes)
            case _:
                raise InvalidRequest("a message of a kind that is not known here")

    def leave(self, connection: NodeConnection) -> None:
        """Remove a connection whose stream has ended."""
        connection.end(None)
        if self._leader_term is not None:
            self._leader_term.leave(connection)

    async def lease_capacity(
        self, request: cluster_pb.LeaseCapacityRequest
    ) -> cluster_pb.LeaseCapacityResponse:
        """Answer a topic controller: see ``LeaseAllocator.lease``."""
        if self._leases is None:
            raise self.not_leader()
        try:
            return await self._leases.lease(request)
        except NotLeader:
            raise self.not_leader() from None

    async def capacity(self) -> cluster_pb.GetCapacityResponse:
        """Return the capacity ledger: see ``LeaseAllocator.accounts``."""
        if self._leases is None:
            raise self.not_leader()
        try:
            return await self._leases.accounts()
        except NotLeader:
            raise self.not_leader() from None

    async def change_replicas(
        self, request: cluster_pb.ChangeReplicasRequest
    ) -> cluster_pb.ChangeReplicasResponse:
        """Add an operator's wish to the shard map: see ``replica_wishes.change_replicas``."""
        return await self._with_balancer(
            lambda term, balancer: change_replicas(term, balancer, request)
        )

    async def set_node_state(
        self, request: cluster_pb.SetNodeStateRequest
    ) -> cluster_pb.SetNodeStateResponse:
        """Set the state of a shard node: see ``replica_wishes.set_node_state``."""
        return await self._with_balancer(
            lambda term, balancer: set_node_state(term, balancer, request, self._clock)
        )

    async def balance_replicas(
        self, request: cluster_pb.BalanceReplicasRequest
    ) -> cluster_pb.ReplicaPlan:
        """Place replicas, or stop that: see ``replica_wishes.balance_replicas``."""
        return await self._with_balancer(
            lambda term, balancer: balance_replicas(term, balancer, request)
        )

    async def replica_plan(self) -> cluster_pb.ReplicaPlan:
        """Return the shard nodes and the replicas that are to move."""
        return await self._with_balancer(replica_plan)

    async def set_quotas(
        self, request: cluster_pb.SetQuotasRequest
    ) -> cluster_pb.SetQuotasResponse:
        """Set quotas of brokers and tenants: see ``LeaderTerm.set_quotas``."""
        return await self._as_leader(lambda term: term.set_quotas(request))

    async def quotas(self) -> cluster_pb.GetQuotasResponse:
        """Return the present quotas, linearizable.

        Raises:
            NotLeader, DeadlineExceeded: As for ``join``.
        """
        leader_term = await self._confirmed_term()
        held = wire.quotas_to_proto(leader_term.committed.quotas)
        return cluster_pb.GetQuotasResponse(quotas=held)

    async def exclude_node(
        self, request: cluster_pb.ExcludeNodeRequest
    ) -> cluster_pb.ExcludeNodeResponse:
        """Exclude a node: see ``exclusion.exclude_node``."""
        return await self._as_leader(lambda term: exclude_node(term, request, self.node_id))

    async def plan_slots(
        self, request: cluster_pb.PlanSlotsRequest
    ) -> cluster_pb.PlanSlotsResponse:
        """Plan moves of slots: see ``plan_requests.plan_slots``."""
        return await self._as_leader(lambda term: plan_slots(term, request))

    async def plans(self, request: cluster_pb.GetPlansRequest) -> cluster_pb.GetPlansResponse:
        """Return the last plans: see ``plan_requests.get_plans``."""
        return await self._as_leader(lambda term: get_plans(term, request))

    async def stop_plan(self, request: cluster_pb.StopPlanRequest) -> cluster_pb.StopPlanResponse:
        """Stop a plan: see ``plan_requests.stop_plan``."""
        return await self._as_leader(lambda term: stop_plan(term, request))

    async def set_configuration(
        self, request: cluster_pb.SetConfigurationRequest
    ) -> cluster_pb.SetConfigurationResponse:
        """Set overrides of settings: see ``LeaderTerm.set_configuration``."""
        return await self._as_leader(lambda term: term.set_configuration(request))

    async def configuration(self) -> cluster_pb.GetConfigurationResponse:
        """Return the present overrides of settings, linearizable.

        Raises:
            NotLeader, DeadlineExceeded: As for ``join``.
        """
        leader_term = await self._confirmed_term()
        held = wire.configuration_to_proto(leader_term.committed.configuration)
        return cluster_pb.GetConfigurationResponse(configuration=held)

    async def _with_balancer(
        self, change: Callable[[LeaderTerm, ReplicaBalancer], Awaitable[Answer]]
    ) -> Answer:
        """As ``_as_leader``, for what needs the balancer of the term as well."""
        balancer = self._balancer
        if balancer is None:
            raise self.not_leader()
        return await self._as_leader(lambda term: change(term, balancer))

    async def _as_leader(self, change: Callable[[LeaderTerm], Awaitable[Answer]]) -> Answer:
        """Make a change in the present term; a caller of another node is sent to the leader."""
        if self._leader_term is None:
            raise self.not_leader()
        try:
            return await change(self._leader_term)
        except NotLeader:
            raise self.not_leader() from None

    async def cluster_state(self) -> cluster_pb.ClusterUpdate:
        """Return the full state that a connecting node gets, linearizable.

        Raises:
            NotLeader, DeadlineExceeded: As for ``join``.
        """
        leader_term = await self._confirmed_term()
        update = leader_term.full_update()
        update.loads.extend(leader_term.loads.shown())
        return update

    def status(self) -> LogStatus:
        """Return the status of this replica in group 0."""
        return self._log.status

    # Inside -----------------------------------------------------------------------------------

    async def _confirmed_term(self) -> LeaderTerm:
        """Return the present term once a majority confirmed it."""
        leader_term = self._leader_term
        if leader_term is None:
            raise self.not_leader()
        try:
            async with timeout(CONFIRM_MS_MAX / 1_000):
                await self._log.read_index()
        except NotLeader:
            raise self.not_leader() from None
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"no majority of group 0 answered within {CONFIRM_MS_MAX} ms"
            ) from error
        if self._leader_term is not leader_term:
            raise self.not_leader()
        return leader_term

    def _on_commit(self, entries: Sequence[Entry]) -> None:
        if self._leader_term is not None:
            self._leader_term.committed_entries(entries)

    def _on_role_change(self, change: RoleChange) -> None:
        self._leader_id = change.leader_id
        if change.role is Role.LEADER:
            if self._leader_term is None or self._leader_term.term != change.term:
                self._end_term()
                self._begin_term(change.term)
            return
        self._end_term()

    def _begin_term(self, term: int) -> None:
        state, applied_index = self._view.load()
        self._leader_term = LeaderTerm(
            term=term,
            state=state,
            applied_index=applied_index,
            log=self._log,
            clock=self._clock,
            plan=self._plan,
            manager_endpoints=tuple(self._endpoints.values()),
            on_update=self._on_update,
        )
        self._grants = GrantAllocator(self._leader_term, self._grantor)
        self._leases = LeaseAllocator(self._leader_term, self._grants, self._clock)
        self._balancer = ReplicaBalancer(self._leader_term, self._clock, self._plan)
        self._balancer.start()
        _logger.info("leads the cluster", term=term, applied_index=applied_index)

    def _end_term(self) -> None:
        leader_term, self._leader_term = self._leader_term, None
        grants, self._grants, self._leases = self._grants, None, None
        balancer, self._balancer = self._balancer, None
        if grants is not None:
            grants.stop()
        if balancer is not None:
            balancer.stop()
        if leader_term is not None:
            error: MetadataError = self.not_leader()
            leader_term.stop(error)
            _logger.info("no longer leads the cluster", term=leader_term.term)


def _check_may_report(connection: NodeConnection) -> None:
    if connection.kind != SHARD_KIND:
        raise InvalidRequest(
            f"node {connection.node_id} of kind {connection.kind} cannot report for a shard"
        )


def _reported_window(
    connection: NodeConnection, reported: LookupWindowRecorded
) -> LookupWindow | None:
    """Return the window that a discovery process reports of itself; None if it is invalid.

    Raises:
        InvalidRequest: The window names another node.
    """
    worker = reported.process.partition("-")[0]
    own = {reported.node_id, f"{reported.node_id}.{worker}"}
    if connection.kind != DISCOVERY_KIND or connection.node_id not in own:
        raise InvalidRequest(
            f"node {connection.node_id} of kind {connection.kind} reports lookups of "
            f"{reported.node_id} {reported.process}"
        )
    try:
        return window_from_proto(reported)
    except InvalidRequest as error:
        # Do not end the stream: the node would send the same window after each reconnect.
        _logger.warning("window of lookups refused", node=reported.node_id, why=str(error))
        return None
