"""What tests of membership ask of a cluster: changes carried out, and everything level."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from nextgen.cli.calls.settings_state import apply_changes
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.shards.replica_change import ReplicaChanger
from nextgen.cli.shards.replica_list import gather_replicas
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.governance.service_settings import REPLICAS_BALANCE
from nextgen.tasks.timeouts import timeout

CHANGE_MS_MAX = 60_000
"""For one change; it takes a fraction of a second unless the machine is busy with other things."""

LEVEL_S_MAX = 60
LAG_POSITIONS_MAX = 64
"""While load goes on, one replica is always a little behind."""

LOOK_S = 0.2


async def place_by_hand(cluster: LocalCluster) -> None:
    """Turn off that replicas are placed by themselves: what a test changes would be undone."""
    await apply_changes(cluster.plan.discovery_endpoints, {REPLICAS_BALANCE: "false"})


async def change(
    cluster: LocalCluster, what: str, shard_id: int, node_id: str, *, wait: bool = True
) -> dict[str, Any]:
    """Add, remove or cancel a replica; return what the command line would print."""
    endpoints = cluster.plan.discovery_endpoints
    async with ReplicaChanger(endpoints, timeout_ms=CHANGE_MS_MAX) as changer:
        return await changer.change(what, shard_id, node_id, wait=wait)


async def wait_members(cluster: LocalCluster, shard_id: int, voters: Iterable[str]) -> None:
    """Return when the map names these nodes alone, as replicas, and so does the shard's leader."""
    wanted = set(voters)
    found: object = "nobody answered"
    try:
        async with timeout(CHANGE_MS_MAX / 1_000):
            while True:
                shard = (await led_shards_of(cluster)).get(shard_id)
                if shard is not None:
                    stages = {each["node_id"]: each["stage"] for each in shard["replicas"]}
                    found = stages, shard["voters"], shard["learners"]
                    if found == (dict.fromkeys(wanted, "replica"), sorted(wanted), []):
                        return
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"shard {shard_id} is not at {sorted(wanted)}: {found}") from None


async def change_everywhere(cluster: LocalCluster, what: str, node_id: str) -> None:
    """Add or remove a node's replicas in every shard, one after the other."""
    endpoints = cluster.plan.discovery_endpoints
    async with ReplicaChanger(endpoints, timeout_ms=CHANGE_MS_MAX) as changer:
        for shard_id in await changer.shard_ids(what, None, node_id):
            await changer.change(what, shard_id, node_id, wait=True)


async def add_shard_node(cluster: LocalCluster) -> str:
    """Start one more shard node and return its id when it is ready; it gets no replicas unasked."""
    await place_by_hand(cluster)
    return await start_shard_node(cluster)


async def start_shard_node(cluster: LocalCluster) -> str:
    """Start one more shard node and return its id when it is ready."""
    grown = cluster.plan.with_node("shard-node")
    await cluster.adopt(grown)
    node_id = grown.nodes[-1].node_id
    await cluster.wait_ready([node_id])
    return node_id


async def shards_of(cluster: LocalCluster) -> dict[int, dict[str, Any]]:
    """Return what ``shards replicas list`` shows, by shard; whoever is slow is asked again.

    What was just recorded discovery may not have been told of yet.
    """
    async with timeout(LEVEL_S_MAX):
        while True:
            try:
                gathered = await gather_replicas(cluster.plan.discovery_endpoints)
            except MetadataError:
                await asyncio.sleep(LOOK_S)
                continue
            return {shard["shard_id"]: shard for shard in gathered["shards"]}


async def led_shards_of(cluster: LocalCluster) -> dict[int, dict[str, Any]]:
    """The same, once every shard has a leader that reports its voters."""
    async with timeout(LEVEL_S_MAX):
        while True:
            shards = await shards_of(cluster)
            if shards and all(shard["voters"] for shard in shards.values()):
                return shards
            await asyncio.sleep(LOOK_S)


async def wait_level(cluster: LocalCluster, node_ids: Iterable[str] | None = None) -> None:
    """Return when every shard has a leader, and its replicas here (default: anywhere) follow."""
    wanted = None if node_ids is None else set(node_ids)
    reasons: list[str] = []
    try:
        async with timeout(LEVEL_S_MAX):
            while reasons := await _not_level(cluster, wanted):
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"not level after {LEVEL_S_MAX} s: {'; '.join(reasons)}") from None


async def _not_level(cluster: LocalCluster, wanted: set[str] | None) -> list[str]:
    shards = await shards_of(cluster)
    reasons = []
    for shard_id, shard in shards.items():
        if all(replica["role"] != "leader" for replica in shard["replicas"]):
            reasons.append(f"shard {shard_id} has no leader that answers")
        for replica in shard["replicas"]:
            if wanted is not None and replica["node_id"] not in wanted:
                continue
            follows = replica["role"] in ("leader", "follower")
            if not follows or replica["lag_positions"] > LAG_POSITIONS_MAX:
                reasons.append(f"shard {shard_id}: {replica}")
    return reasons
