"""The members of the cluster, and the addresses where each of them listens.

A registered node stays a member while it is away; its connection is soft state. Only shard nodes
and discovery nodes are members; brokers are in the broker directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import ADDRESS_BYTES_MAX, CLUSTER_NODES_MAX

SHARD_KIND = "shard"
DISCOVERY_KIND = "discovery"
MEMBER_KINDS = frozenset({SHARD_KIND, DISCOVERY_KIND})


class NodeState(StrEnum):
    """Whether a shard node holds replicas. All but active ones give them up."""

    ACTIVE = "active"
    LEAVING = "leaving"
    """Drained by an operator."""
    LOST = "lost"
    """Silent for too long. It is active again as soon as it comes back."""
    REMOVED = "removed"
    """An operator says that it does not come back."""


@dataclass(frozen=True, slots=True)
class Node:
    """One process. Only a shard node has ``raft_host`` and ``raft_port``."""

    node_id: str
    kind: str
    grpc: str
    raft_host: str = ""
    raft_port: int = 0
    http: str = ""
    zone: str = ""
    """Failure domain of a shard node, free text; empty: none."""


@dataclass(frozen=True, slots=True)
class NodeStateSet:
    """The shard node is in this state from this event on."""

    node_id: str
    state: NodeState
    since_ms: int
    """Unix time."""


@dataclass(frozen=True, slots=True)
class SetNodeState:
    """Set the state of a shard node, at ``at_ms`` (Unix time).

    ``connected`` are the shard nodes that are connected at the moment, and ``active_needed`` is
    how many of them hold all replicas of a shard.
    """

    node_id: str
    state: NodeState
    at_ms: int
    connected: AbstractSet[str]
    active_needed: int


@dataclass(frozen=True, slots=True)
class RegisterNode:
    """A node said hello with these addresses."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeRegistered:
    """The node is a member and listens at these addresses from this event on."""

    node: Node


@dataclass(frozen=True, slots=True)
class Membership:
    """All members by node id. The mappings are never changed in place."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    states: Mapping[str, NodeStateSet] = field(default_factory=dict)
    """The last state that was set, by node id: a node that has none is active."""

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """Return the ids of the members of one kind, ascending."""
        return tuple(sorted(node.node_id for node in self.nodes.values() if node.kind == kind))

    def state_of(self, node_id: str) -> NodeState:
        """Return the state of a shard node."""
        known = self.states.get(node_id)
        return known.state if known is not None else NodeState.ACTIVE

    def active_shard_nodes(self) -> tuple[str, ...]:
        """Return the ids of the shard nodes that hold replicas, ascending."""
        shard_nodes = self.of_kind(SHARD_KIND)
        return tuple(each for each in shard_nodes if self.state_of(each) is NodeState.ACTIVE)


INITIAL = Membership()


def decide(state: Membership, command: RegisterNode) -> Accepted[NodeRegistered] | Rejected:
    """Accept a node of a known kind; a node id keeps its kind for ever."""
    node = command.node
    known = state.nodes.get(node.node_id)
    if known == node:
        return Accepted(())
    if not node.node_id or node.kind not in MEMBER_KINDS:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"node {node.node_id!r} of kind {node.kind!r} cannot be a member",
        )
    if any(
        len(text.encode()) > ADDRESS_BYTES_MAX
        for text in (node.grpc, node.raft_host, node.http, node.zone)
    ):
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"node {node.node_id} gives an address or zone of more than {ADDRESS_BYTES_MAX} bytes",
        )
    if node.kind == SHARD_KIND and not (node.raft_host and 0 < node.raft_port < 65_536):
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"shard node {node.node_id} gave no raft address: {node.raft_host}:{node.raft_port}",
        )
    if known is not None and known.kind != node.kind:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"node {node.node_id} is of kind {known.kind} and cannot become {node.kind}",
        )
    if known is None and len(state.nodes) >= CLUSTER_NODES_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"the cluster has {len(state.nodes)} nodes, at most {CLUSTER_NODES_MAX} are allowed",
        )
    return Accepted((NodeRegistered(node),))


def decide_state(state: Membership, command: SetNodeState) -> Accepted[NodeStateSet] | Rejected:
    """Set a shard node's state unless too few active nodes would be left for its replicas."""
    node_id, present = command.node_id, state.state_of(command.node_id)
    refused = _no_shard_node(state, node_id)
    if refused is not None:
        return refused
    if command.state is present:
        return Accepted(())
    left = (set(state.active_shard_nodes()) & command.connected) - {node_id}
    is_taken_away = present is NodeState.ACTIVE and command.state is not NodeState.ACTIVE
    # A lost node is lost whether its replicas have another place or not.
    if is_taken_away and command.state is not NodeState.LOST and len(left) < command.active_needed:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"without {node_id} only {len(left)} active shard nodes are connected, and each shard "
            f"needs {command.active_needed}: add another one first",
        )
    return Accepted((NodeStateSet(node_id, command.state, command.at_ms),))


def evolve(state: Membership, event: NodeRegistered | NodeStateSet) -> Membership:
    """Return the members after ``event``."""
    if isinstance(event, NodeRegistered):
        return replace(state, nodes={**state.nodes, event.node.node_id: event.node})
    return replace(state, states={**state.states, event.node_id: event})


def _no_shard_node(state: Membership, node_id: str) -> Rejected | None:
    node = state.nodes.get(node_id)
    if node is None:
        return Rejected(RejectionCode.NOT_FOUND, f"no node {node_id!r} has ever joined the cluster")
    if node.kind != SHARD_KIND:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"{node_id} is of kind {node.kind}: only shard nodes have replicas",
        )
    return None
