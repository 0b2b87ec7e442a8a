"""Nodes that are excluded from the cluster: lost, stolen, or not to be trusted any more.

An exclusion is for ever, as a node id is: a node that comes back gets another name and certificate.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import NODE_ID_BYTES_MAX
from nextgen.kernel.limits.inbound import EXCLUDED_NODES_MAX


@dataclass(frozen=True, slots=True)
class Exclusions:
    """The excluded nodes. The set is never changed in place."""

    node_ids: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ExcludeNode:
    """Exclude a node. ``leader_id`` is the replica of the cluster manager that decides."""

    node_id: str
    leader_id: str


@dataclass(frozen=True, slots=True)
class NodeExcluded:
    """No process of the cluster accepts the node from this event on."""

    node_id: str


INITIAL = Exclusions()


def decide(state: Exclusions, command: ExcludeNode) -> Accepted[NodeExcluded] | Rejected:
    """Accept an exclusion, of a node that never joined too; a repeated one changes nothing."""
    node_id = command.node_id
    if node_id in state.node_ids:
        return Accepted(())
    if not 1 <= len(node_id.encode()) <= NODE_ID_BYTES_MAX:
        return Rejected(RejectionCode.INVALID_NAME, f"a node id has 1 to {NODE_ID_BYTES_MAX} bytes")
    if node_id == command.leader_id:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"{node_id} leads the cluster: stop it, and another replica excludes it",
        )
    if len(state.node_ids) >= EXCLUDED_NODES_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"{len(state.node_ids)} nodes are excluded, at most {EXCLUDED_NODES_MAX} may be: "
            "issue certificates of another authority, and trust that alone",
        )
    return Accepted((NodeExcluded(node_id),))


def evolve(state: Exclusions, event: NodeExcluded) -> Exclusions:
    """Return the exclusions after ``event``."""
    return Exclusions(frozenset({*state.node_ids, event.node_id}))
