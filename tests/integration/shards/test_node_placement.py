"""Shard nodes come and go: replicas follow by themselves, while creates and lookups go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nextgen.cli.calls.replica_plan import described, replica_plan, set_node_state
from nextgen.cli.calls.settings_state import apply_changes
from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.governance.service_settings import NODE_LOST_AFTER
from nextgen.tasks.timeouts import timeout
from tests.support.callers.replica_world import led_shards_of, start_shard_node, wait_level
from tests.support.callers.steady_load import steady_load
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

SIZE = ClusterSize(cluster_managers=1, discovery=1, brokers=1, shards=4)
THREE = ["shard-node-1", "shard-node-2", "shard-node-3"]
MOVED_S_MAX = 120
GAP_MS_MAX = 30_000
"""No request waits longer: beyond it the client would have given up."""

pytestmark = pytest.mark.timeout(300)


async def plan_of(cluster: LocalCluster) -> dict[str, Any]:
    return described(await replica_plan(cluster.plan.discovery_endpoints))


async def placed(
    cluster: LocalCluster, what: str, is_so: Callable[[dict[str, int]], bool]
) -> dict[str, int]:
    """Return the number of replicas of each node once nothing is left to move and ``is_so``."""
    plan: dict[str, Any] = {}
    try:
        async with timeout(MOVED_S_MAX):
            while True:
                try:
                    plan = await plan_of(cluster)
                except MetadataError:
                    plan = {}
                held = {node["node_id"]: node["replicas"] for node in plan.get("nodes", ())}
                if plan and not plan["moves"] and not plan["under_way"] and is_so(held):
                    return held
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"{what}: {json.dumps(plan)}") from None


async def leads(cluster: LocalCluster, node_id: str) -> bool:
    shards = await led_shards_of(cluster)
    return any(shard["leader"] == node_id for shard in shards.values())


async def test_replicas_follow_nodes_that_join_are_drained_and_die(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_cluster(tmp_path, SIZE) as cluster:
        endpoints = cluster.plan.discovery_endpoints
        async with steady_load(cluster, timeout_ms=GAP_MS_MAX) as load:
            load.step("join")
            fourth = await start_shard_node(cluster)
            held = await placed(cluster, "a fourth node joins", lambda found: found[fourth] == 3)
            assert held == dict.fromkeys([*THREE, fourth], 3)
            async with timeout(MOVED_S_MAX):
                while not await leads(cluster, fourth):
                    await asyncio.sleep(0.2)

            load.step("drain")
            await set_node_state(endpoints, "shard-node-1", "leaving")
            held = await placed(cluster, "a drain", lambda found: found["shard-node-1"] == 0)
            assert held == {"shard-node-1": 0, **dict.fromkeys([*THREE[1:], fourth], 4)}
            with pytest.raises(Refused, match="only 2 active shard nodes are connected"):
                await set_node_state(endpoints, "shard-node-2", "leaving")
            await set_node_state(endpoints, "shard-node-1", "active")
            await placed(cluster, "the drain is undone", lambda found: found["shard-node-1"] == 3)

            load.step("kill")
            await apply_changes(endpoints, {NODE_LOST_AFTER: "2"})
            await cluster.kill("shard-node-2")
            held = await placed(cluster, "a death", lambda found: found["shard-node-2"] == 0)
            await load.progress()
            survivors = ["shard-node-1", "shard-node-3", fourth]
            assert held == {"shard-node-2": 0, **dict.fromkeys(survivors, 4)}
            (dead,) = [
                node
                for node in (await plan_of(cluster))["nodes"]
                if node["node_id"] == "shard-node-2"
            ]
            assert (dead["state"], dead["is_connected"]) == ("lost", False)
            await wait_level(cluster)

            load.step("return")
            await cluster.start_node("shard-node-2")
            await placed(cluster, "it comes back", lambda found: found["shard-node-2"] == 3)
            await load.progress()
            await wait_level(cluster)
        shards = await led_shards_of(cluster)

    with capsys.disabled():
        print(json.dumps({"what": "nodes come and go", **load.summary()}))
    assert load.errors == []
    assert all(len(shard["voters"]) == 3 for shard in shards.values())
