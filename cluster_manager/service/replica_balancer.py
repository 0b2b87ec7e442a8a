"""Places replicas as nodes come, go and are lost: the state of nodes first, then the next changes.

    every PLACEMENT_PAUSE_MS ──▶ silent too long: lost; back: active ──▶ plan ──▶ next changes

One instance per term. What is durable is in the log: states of nodes, settings, and what is under
way in the shard map. Since when a node is silent is in memory, so after a failover each one has the
whole time again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import structlog

from cluster_manager import wire
from cluster_manager.domain.cluster import (
    ClusterState,
    FirstMapPlan,
    decide_change_replicas,
    decide_node_state,
)
from cluster_manager.domain.configuration import Configuration
from cluster_manager.domain.membership import SHARD_KIND, NodeState, SetNodeState
from cluster_manager.domain.node_placement import (
    Cluster,
    ReplicaChange,
    ShardNode,
    moves,
    next_changes,
    under_way,
)
from cluster_manager.domain.replica_changes import Change, ChangeReplicas
from cluster_manager.ports import Clock
from cluster_manager.service.leader_term import LeaderTerm
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.decider import Accepted, Rejected
from nextgen.kernel.governance.service_settings import ReplicaSettings, lenient
from nextgen.kernel.limits.placement import (
    NODES_SETTLE_MS,
    PLACEMENT_PAUSE_MS,
    REPLICA_CHANGES_MAX,
)
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb

_logger = structlog.get_logger(__name__)


class ReplicaBalancer:
    """Acts for the leader of ``term`` from ``start`` to ``stop``."""

    def __init__(self, term: LeaderTerm, clock: Clock, plan: FirstMapPlan) -> None:
        self._term = term
        self._clock = clock
        self.replication_factor = plan.replication_factor
        self._is_requested = False
        self._silent_since_ms: dict[str, int] = {}
        self._nodes: dict[str, ShardNode] = {}
        self._changed_at_ms = clock.monotonic_ms()
        self._settled_state: object = None
        self._settings: tuple[Configuration | None, ReplicaSettings] = (None, ReplicaSettings())
        self._cancel_timer: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<ReplicaBalancer term={self._term.term} {self._obstacle() or 'places'}>"

    def start(self) -> None:
        """Look every ``PLACEMENT_PAUSE_MS`` from now on."""
        at_ms = self._clock.monotonic_ms() + PLACEMENT_PAUSE_MS
        self._cancel_timer = self._clock.call_at(at_ms, self._look)

    def stop(self) -> None:
        """Look no more. What is under way is completed by the shards."""
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None

    @property
    def settings(self) -> ReplicaSettings:
        """The present settings."""
        configuration = self._term.pending.configuration
        if self._settings[0] is not configuration:
            self._settings = (configuration, lenient(configuration.settings).replicas)
        return self._settings[1]

    def request(self, *, stop: bool) -> None:
        """Place replicas until nothing is left to move, whatever the setting; or no longer."""
        self._is_requested = not stop
        self._settled_state = None

    def plan(self) -> cluster_pb.ReplicaPlan:
        """Return the nodes, and what is to move, from what was decided so far."""
        cluster = self._cluster()
        left = moves(cluster)
        return cluster_pb.ReplicaPlan(
            nodes=self.nodes(),
            moves=map(wire.replica_move_to_proto, left),
            under_way=map(wire.replica_move_to_proto, under_way(cluster)),
            is_on=self.settings.balance,
            is_requested=self._is_requested,
            waits_for=self._waits_for(cluster) if left else "",
            replication_factor=self.replication_factor,
        )

    def nodes(self) -> list[cluster_pb.ShardNode]:
        """Return the shard nodes by id, with their states and the numbers of their replicas."""
        state = self._term.pending
        placements = state.shard_map.placements if state.shard_map is not None else ()
        replicas = Counter(node for each in placements for node in each.staying)
        joining = Counter(node for each in placements for node in each.joining)
        leaving = Counter(node for each in placements for node in each.leaving)
        leaders = Counter(each.node_id for each in self._term.endpoints.all())
        known = state.membership.states
        return [
            cluster_pb.ShardNode(
                node_id=node_id,
                zone=node.zone,
                state=node.state,
                since_ms=known[node_id].since_ms if node_id in known else 0,
                is_connected=node.is_connected,
                replicas=replicas[node_id],
                joining=joining[node_id],
                leaving=leaving[node_id],
                leaders=leaders[node_id],
            )
            for node_id, node in sorted(self._shard_nodes(state).items())
        ]

    # Inside -----------------------------------------------------------------------------------

    def _look(self) -> None:
        self.start()
        for step in (self._watch_nodes, self._place):
            try:
                step()
            except MetadataError as error:
                # The next look, or the next leader, tries again.
                _logger.info("replicas are not placed", why=str(error))

    def _watch_nodes(self) -> None:
        """Find out who is silent for too long, and who is back."""
        state, now_ms = self._term.pending, self._clock.monotonic_ms()
        nodes = self._shard_nodes(state)
        if nodes != self._nodes:
            self._nodes, self._changed_at_ms = nodes, now_ms
        for node_id, node in nodes.items():
            if node.is_connected:
                self._silent_since_ms.pop(node_id, None)
                if node.state is NodeState.LOST:
                    self._set_state(node_id, NodeState.ACTIVE)
            else:
                self._silent_since_ms.setdefault(node_id, now_ms)
        lost_ms = self.settings.node_lost_ms
        if not lost_ms or not _most_are_there(nodes):
            return
        for node_id, since_ms in self._silent_since_ms.items():
            if nodes[node_id].is_active and now_ms - since_ms >= lost_ms:
                self._set_state(node_id, NodeState.LOST)

    def _set_state(self, node_id: str, state: NodeState) -> None:
        command = SetNodeState(node_id, state, self._clock.unix_ms(), self._connected(), 0)
        decision = decide_node_state(self._term.pending, command)
        if isinstance(decision, Accepted) and decision.events:
            self._term.propose(decision.events)
            _logger.warning("shard node", node=node_id, state=state.value)

    def _place(self) -> None:
        cluster = self._cluster()
        is_settled = self._is_settled()
        seen = (cluster, is_settled, self.settings)
        if self._obstacle() or seen == self._settled_state:
            return
        found = next_changes(cluster, evens=is_settled)
        has_begun = [self._propose(change) for change in found[:REPLICA_CHANGES_MAX]]
        if not any(has_begun):
            # Nothing can begin before something changes.
            self._settled_state = seen
            if is_settled and not under_way(cluster) and not moves(cluster):
                self._is_requested = False

    def _propose(self, change: ReplicaChange) -> bool:
        wish = ChangeReplicas(
            change.shard_id, change.node_id, change.change, self._connected(), replaces=True
        )
        decision = decide_change_replicas(self._term.pending, wish)
        values = {
            "shard": change.shard_id,
            "node": change.node_id,
            "change": change.change.value,
        }
        if isinstance(decision, Rejected):
            _logger.info("replica stays", why=decision.message, **values)
            return False
        self._term.propose(decision.events)
        _logger.info("replicas are placed", **values)
        return True

    def _cluster(self) -> Cluster:
        state = self._term.pending
        return Cluster(
            state.shard_map.placements if state.shard_map is not None else (),
            self._shard_nodes(state),
            self.replication_factor,
            {each.shard_id: each.node_id for each in self._term.endpoints.all()},
        )

    def _shard_nodes(self, state: ClusterState) -> dict[str, ShardNode]:
        members, connected = state.membership, self._connected()
        excluded = state.exclusions.node_ids
        return {
            node_id: ShardNode(
                node_id,
                members.nodes[node_id].zone,
                NodeState.REMOVED if node_id in excluded else members.state_of(node_id),
                node_id in connected,
            )
            for node_id in members.of_kind(SHARD_KIND)
        }

    def _connected(self) -> set[str]:
        return self._term.connected_shard_nodes()

    def _is_settled(self) -> bool:
        return self._clock.monotonic_ms() - self._changed_at_ms >= NODES_SETTLE_MS

    def _obstacle(self) -> str:
        """Return why nothing is placed at all, "" if it is."""
        if not self.settings.balance and not self._is_requested:
            return "the setting is off"
        return ""

    def _waits_for(self, cluster: Cluster) -> str:
        """Return why no move begins, "" if one may."""
        obstacle = self._obstacle()
        if obstacle:
            return obstacle
        lacking = [each for each in cluster.placements if not cluster.has_majority(each)]
        if lacking:
            return f"shard {lacking[0].shard_id} lacks a majority of its replicas"
        if not self._is_settled() and not moves(cluster, evens=False):
            return "a shard node came, went or changed its state a moment ago"
        begins = any(each.change is Change.ADD for each in next_changes(cluster))
        return "" if begins else "what is under way"


def _most_are_there(nodes: dict[str, ShardNode]) -> bool:
    """Return whether at least half of the active nodes are connected.

    If not, it is rather this process that is cut off.
    """
    active = [node for node in nodes.values() if node.is_active]
    return 2 * sum(node.is_connected for node in active) >= len(active)
