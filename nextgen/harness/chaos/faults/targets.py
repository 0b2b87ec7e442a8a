"""Chooses the target of a fault: the leader at that moment, and the shards that a node leads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nextgen.cli.calls.cluster_status import gather_status
from nextgen.cli.local.plan import ClusterPlan
from nextgen.harness.chaos.schedule import FaultStep, Group, Role
from nextgen.harness.demo.victims import manager_leader
from nextgen.kernel.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Target:
    """One node, and the shards it leads."""

    node_id: str
    shards: tuple[int, ...] = ()


class Targets:
    """Chooses among the nodes of a plan by the cluster's status."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        self._managers = [node.grpc for node in plan.of_kind("cluster-manager")]

    async def status(self) -> dict[str, Any]:
        """Return the cluster's status.

        Raises:
            MetadataError: No discovery node answers.
        """
        return await gather_status(self._plan.discovery_endpoints, self._managers)

    async def choose(self, step: FaultStep) -> Target:
        """Return the target of ``step``.

        Raises:
            MetadataError: The cluster has no leader, or does not answer.
        """
        names = [node.node_id for node in self._plan.of_kind(step.group)]
        return choose_among(names, step, await self.status())


def choose_among(names: Sequence[str], step: FaultStep, status: dict[str, Any]) -> Target:
    """Choose the target of a step among ``names``, by the cluster's status.

    Raises:
        Unavailable: There is no node of the group, or no leader.
    """
    if not names:
        raise Unavailable(f"there is no {step.group}")
    if step.role is Role.ANY:
        return Target(names[step.pick % len(names)])
    if step.group is Group.MANAGER:
        leader = manager_leader(status)
    else:
        leaders = [shard["leader"] for shard in status["shards"] if shard["leader"]]
        if not leaders:
            raise Unavailable("no shard has a leader at the moment")
        leader = str(leaders[step.pick % len(leaders)])
    others = sorted(set(names) - {leader}) or [leader]
    chosen = leader if step.role is Role.LEADER else others[step.pick % len(others)]
    return Target(chosen, led_by(chosen, status))


def led_by(node_id: str, status: dict[str, Any]) -> tuple[int, ...]:
    """Return the shards that a node leads."""
    return tuple(shard["shard_id"] for shard in status["shards"] if shard["leader"] == node_id)


def unsettled(status: dict[str, Any], lag_events_max: int) -> Sequence[str]:
    """Return a sentence for each shard that lacks a leader or a replica that keeps up."""
    sentences = [] if status["shards"] else ["no shard is known"]
    for shard in status["shards"]:
        if not shard["leader"]:
            sentences.append(f"shard {shard['shard_id']} has no leader")
        for replica in shard["replicas"]:
            name = f"shard {shard['shard_id']} on {replica['node_id']}"
            if replica["role"] not in ("leader", "follower"):
                sentences.append(f"{name} is {replica['role']}")
            elif replica["lag_positions"] > lag_events_max:
                sentences.append(f"{name} is {replica['lag_positions']} events behind")
    return sentences
