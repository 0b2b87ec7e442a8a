"""One process after the other is stopped (SIGTERM) and started again, as operations.md says."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import NodePlan
from tests.support.replica_world import wait_level
from tests.support.steady_load import SteadyLoad

ORDER = ("cluster-manager", "shard-node", "discovery", "broker")
"""Managers first: they understand what the nodes of an earlier release say, and not vice versa."""


async def restart_one_by_one(
    cluster: LocalCluster,
    load: SteadyLoad,
    *,
    between: Callable[[NodePlan], None] = lambda _node: None,
) -> dict[str, float]:
    """Restart every process; return the seconds that each was away.

    ``between`` is called when a process has ended and before it starts again. The next one goes
    when this one is ready and, for a shard node, nothing lags any more.
    """
    away_s: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    for node in [node for kind in ORDER for node in cluster.plan.of_kind(kind)]:
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
