"""Load files into a live cluster: whole, over the death of a leader, and again without harm."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from nextgen.bulk.cluster_source import AskedCluster
from nextgen.bulk.errors import LoadRefused
from nextgen.bulk.loader import load_folder
from nextgen.bulk.progress import Loaded
from nextgen.client import Client
from nextgen.kernel.routing.slots import SlotTable, initial_table
from nextgen.runtime.lifecycle.exit_code import ExitCode
from nextgen.runtime.security.cluster_proof import environment_of_child
from tests.support.logs.load_folders import write_load_folder
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=1, shards=2)
NAMES = [f"persistent://t{n % 3}/n{n % 30}/x-{n:06d}" for n in range(20_000)]
LOAD_S_MAX = 120.0


async def table_of(cluster: LocalCluster) -> SlotTable:
    source = AskedCluster(cluster.plan.discovery_endpoints)
    await source.ask()
    await source.close()
    assert source.view.slot_table is not None
    return source.view.slot_table


async def load_by_shell(cluster: LocalCluster, folder: Path, *words: str) -> tuple[int, Any]:
    target = cluster.plan.discovery_endpoints[0]
    ended = await asyncio.to_thread(
        run_warm,
        "nextgen",
        ["bulk", "load", str(folder), "--target", target, "--json", *words],
        environment=environment_of_child(os.environ),
        timeout_s=LOAD_S_MAX,
    )
    return ended.returncode, json.loads(ended.stdout) if ended.stdout else None


async def listed(client: Client) -> list[str]:
    names = []
    for namespace in sorted({name.split("://")[1].rpartition("/")[0] for name in NAMES}):
        names += [topic.name async for topic in client.list_topics(namespace)]
    return sorted(names)


@pytest.mark.slow
async def test_a_folder_is_loaded_whole_though_a_leader_dies(tmp_path: Path) -> None:
    folder = tmp_path / "load"
    folder.mkdir()
    async with running_cluster(tmp_path / "cluster", SIZE) as cluster:
        endpoints = cluster.plan.discovery_endpoints
        write_load_folder(folder, NAMES, await table_of(cluster))
        killed: list[asyncio.Task[None]] = []

        def kill_once(loaded: Loaded) -> None:
            if not killed and loaded.total("rows") > len(NAMES) // 4:
                killed.append(asyncio.create_task(cluster.kill("shard-node-1")))

        loaded = await load_folder(folder, endpoints, parents=True, on_loaded=kill_once)

        assert killed, "the load was over before anybody was killed"
        await killed[0]
        assert loaded.is_whole
        # What was in flight when its leader died may be found to exist when it is sent again.
        assert loaded.total("created") + loaded.total("existing") == len(NAMES)
        assert (loaded.tenants_created, loaded.namespaces_created) == (3, 30)
        await cluster.start_node("shard-node-1")
        async with Client(list(endpoints), timeout_ms=30_000) as client:
            assert await listed(client) == sorted(NAMES)
            (location,) = await client.lookup([NAMES[11]])
            assert location.broker_id

        code, told = await load_by_shell(cluster, folder, "--create-parents")
        assert code == ExitCode.DONE
        assert (told["created"], told["existing"]) == (0, len(NAMES))
        code, told = await load_by_shell(cluster, folder, "--resume")
        assert (code, told["skipped"]) == (ExitCode.DONE, len(NAMES))


async def test_what_does_not_fit_the_cluster_is_refused(tmp_path: Path) -> None:
    folder, other = tmp_path / "load", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    size = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=1, shards=2)
    async with running_cluster(tmp_path / "cluster", size) as cluster:
        write_load_folder(other, NAMES[:10], initial_table((1, 2, 3)))
        with pytest.raises(LoadRefused, match="gives slots to other shards"):
            await load_folder(other, cluster.plan.discovery_endpoints)
        code, told = await load_by_shell(cluster, other)
        assert (code, told) == (ExitCode.CANNOT_RUN, None)

        write_load_folder(folder, NAMES[:10], await table_of(cluster))
        code, told = await load_by_shell(cluster, folder)
        assert code == ExitCode.CHECK_FAILED
        assert told["refusals"] == {"PARENT_NOT_FOUND": 10}
