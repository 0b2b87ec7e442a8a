"""Replicas come and go at random while processes are killed; nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize
from nextgen.kernel.errors import MetadataError
from nextgen.tasks.timeouts import timeout
from tests.support.callers.replica_world import change, place_by_hand, shards_of, wait_level
from tests.support.callers.steady_load import SteadyLoad, steady_load
from tests.support.processes.local_cluster import running_cluster

SEED = 17
ROUNDS = 6
SHARD_NODES = 5
SHARDS = 3
BETWEEN_S = 1.0

pytestmark = pytest.mark.timeout(300)


class Chaos:
    """Wishes and kills in an order that a seed gives. One process is away at a time at most."""

    def __init__(self, cluster: LocalCluster, load: SteadyLoad, seed: int) -> None:
        self._cluster = cluster
        self._load = load
        self._random = random.Random(seed)
        self._shard_nodes = [node.node_id for node in cluster.plan.of_kind("shard-node")]
        self.wishes = self.kills = 0

    async def round(self) -> None:
        """Request a change in each shard, and kill a process while it is under way."""
        for shard_id in range(1, SHARDS + 1):
            await self._wish(shard_id)
        victim = self._random.choice(
            [
                *self._shard_nodes,
                *(n.node_id for n in self._cluster.plan.of_kind("cluster-manager")),
            ]
        )
        self._load.step(f"kill {victim}")
        await asyncio.sleep(self._random.uniform(0.0, BETWEEN_S))
        await self._cluster.restart(victim)
        self.kills += 1
        await self._cluster.wait_ready([victim])
        await wait_level_of_members(self._cluster)

    async def _wish(self, shard_id: int) -> None:
        shard = (await shards_of(self._cluster))[shard_id]
        held = {replica["node_id"]: replica["stage"] for replica in shard["replicas"]}
        staying = [node for node, stage in held.items() if stage == "replica"]
        outside = [node for node in self._shard_nodes if node not in held]
        under_way = [node for node, stage in held.items() if stage != "replica"]
        options = [("add", node) for node in outside] + [("cancel", node) for node in under_way]
        if len(staying) > 3:
            options += [("remove", node) for node in staying]
        if not options:
            return
        what, node = self._random.choice(options)
        try:
            await change(self._cluster, what, shard_id, node, wait=False)
        except MetadataError:
            return  # Refused at this moment, or no cluster manager led: another round.
        self.wishes += 1


async def wait_level_of_members(cluster: LocalCluster) -> None:
    """Return when every replica that the map names without reserve follows."""
    shards = await shards_of(cluster)
    staying = {
        replica["node_id"]
        for shard in shards.values()
        for replica in shard["replicas"]
        if replica["stage"] == "replica"
    }
    away = {
        replica["node_id"]
        for shard in shards.values()
        for replica in shard["replicas"]
        if replica["stage"] != "replica"
    }
    await wait_level(cluster, staying - away)


async def settled(cluster: LocalCluster) -> dict[int, list[str]]:
    """Return the voters by shard, once nothing is under way and map and logs agree."""
    async with timeout(60):
        while True:
            shards = await shards_of(cluster)
            if all(
                {replica["stage"] for replica in shard["replicas"]} == {"replica"}
                and sorted(replica["node_id"] for replica in shard["replicas"]) == shard["voters"]
                and not shard["learners"]
                for shard in shards.values()
            ):
                return {shard_id: shard["voters"] for shard_id, shard in shards.items()}
            await asyncio.sleep(0.2)


async def test_replicas_come_and_go_while_processes_are_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ClusterSize(shard_nodes=SHARD_NODES, shards=SHARDS, brokers=1, discovery=1)
    async with running_cluster(tmp_path, size) as cluster, steady_load(cluster) as load:
        await place_by_hand(cluster)
        chaos = Chaos(cluster, load, SEED)
        for _ in range(ROUNDS):
            await chaos.round()
        voters = await settled(cluster)
        await wait_level(cluster)
        await load.progress()

    with capsys.disabled():
        print(
            json.dumps(
                {
                    "what": "membership chaos",
                    "wishes": chaos.wishes,
                    "kills": chaos.kills,
                    "lost": 0,
                    **load.summary(),
                }
            )
        )
    assert load.errors == []
    assert chaos.wishes >= ROUNDS
    assert all(len(each) >= 3 for each in voters.values())
