"""The members of the cluster, and the addresses where each of them listens.

A registered node stays a member while it is away; its connection is soft state. Only shard nodes
and discovery nodes are members; brokers are in the broker directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import ADDRESS_BYTES_MAX, CLUSTER_NODES_MAX

SHARD_KIND = "shard"
DISCOVERY_KIND = "discovery"
MEMBER_KINDS = frozenset({SHARD_KIND, DISCOVERY_KIND})


@dataclass(frozen=True, slots=True)
class Node:
    """One process. Only a shard node has ``raft_host`` and ``raft_port``."""

    node_id: str
    kind: str
    grpc: str
    raft_host: str = ""
    raft_port: int = 0
    http: str = ""


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
    """All members by node id. The mapping is never changed in place."""

    nodes: Mapping[str, Node] = field(default_factory=dict)

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """Return the ids of the members of one kind, ascending."""
        return tuple(sorted(node.node_id for node in self.nodes.values() if node.kind == kind))


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
        len(text.encode()) > ADDRESS_BYTES_MAX for text in (node.grpc, node.raft_host, node.http)
    ):
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"node {node.node_id} gives an address of more than {ADDRESS_BYTES_MAX} bytes",
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


def evolve(state: Membership, event: NodeRegistered) -> Membership:
    """Return the members after ``event``."""
    return Membership({**state.nodes, event.node.node_id: event.node})
