"""A rolling restart in the order of operations.md: each process is stopped and started again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from typing import Protocol

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterPlan, NodePlan
from tests.support.callers.replica_world import wait_level

ORDER = ("cluster-manager", "shard-node", "discovery", "broker")
"""Managers first: they understand nodes of an earlier release, and not vice versa."""


class Load(Protocol):
    """Clients at work meanwhile."""

    def step(self, name: str) -> None:
        """Note that the process ``name`` is about to be stopped."""

    async def progress(self) -> None:
        """Return when operations of each kind have succeeded after this call."""


def in_order(plan: ClusterPlan, kinds: Sequence[str] = ORDER) -> list[NodePlan]:
    """Return the processes in the order in which they are replaced."""
    return [node for kind in kinds for node in plan.of_kind(kind)]


async def restart_one_by_one(
    cluster: LocalCluster,
    load: Load,
    *,
    nodes: Sequence[NodePlan] | None = None,
    between: Callable[[NodePlan], None] = lambda _node: None,
) -> dict[str, float]:
    """Restart these processes, by default all; return the seconds that each was away.

    ``between`` is called when a process has ended and before it starts again. The next one goes
    when this one is ready and, for a shard node, nothing lags any more.
    """
    away_s: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    for node in in_order(cluster.plan) if nodes is None else nodes:
        load.step(node.node_id)
        began = loop.time()
        await cluster.kill(node.node_id, signal.SIGTERM)
        between(node)
        await cluster.start_node(node.node_id)
        await cluster.wait_ready([node.node_id])
        away_s[node.node_id] = round(loop.time() - began, 1)
        if node.kind == "shard-node":
            await wait_level(cluster)
        await load.progress()
    return away_s
