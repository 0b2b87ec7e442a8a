"""What is left when disks are gone for good: one of three, two of three, all with an export left.

Real processes. One lost disk needs no tool. With two, the survivor of each group is promoted by
``nextgen shards recover``, and the lost nodes come back under their names with empty disks. With
none left, names come back from the export, without who owned them and what was written behind it.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from nextgen.client import Client
from nextgen.export.errors import ExportGap
from nextgen.export.writing.run import run_export
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.generations import GENERATION_BITS
from nextgen.tasks.timeouts import timeout
from tests.support.processes.local_cluster import (
    MINIMAL,
    ClusterSize,
    LocalCluster,
    running_cluster,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SIZE = ClusterSize(cluster_managers=3, shard_nodes=3, discovery=1, brokers=1, shards=1)
NAMESPACE = "acme/orders"
PATIENCE_S = 120.0


def topic(name: str) -> str:
    return f"persistent://{NAMESPACE}/{name}"


async def lookup_epoch(cluster: LocalCluster, name: str) -> int:
    """Return the epoch of the topic's owner, once there is one."""
    async with timeout(PATIENCE_S), Client(list(cluster.plan.discovery_endpoints)) as client:
        while True:
            try:
                (found,) = await client.lookup([name])
                if not isinstance(found, Exception) and found.epoch:
                    return int(found.epoch)
            except MetadataError:
                pass
            await asyncio.sleep(0.5)


async def create(cluster: LocalCluster, name: str) -> None:
    async with timeout(PATIENCE_S), Client(list(cluster.plan.discovery_endpoints)) as client:
        while True:
            try:
                await client.create_topics([name])
                return
            except MetadataError:
                await asyncio.sleep(0.5)


async def given_topic(cluster: LocalCluster, name: str) -> None:
    async with Client(list(cluster.plan.discovery_endpoints)) as client:
        await client.create_tenant("acme")
        await client.create_namespace(NAMESPACE)
        await client.create_topics([name])


async def lose(cluster: LocalCluster, *node_ids: str) -> None:
    for node_id in node_ids:
        await cluster.kill(node_id)
        shutil.rmtree(cluster_directory(cluster, node_id))


def cluster_directory(cluster: LocalCluster, node_id: str) -> Path:
    arguments = cluster.command_of(cluster.plan.node(node_id))
    return Path(arguments[arguments.index("--data-dir") + 1])


async def recover(cluster: LocalCluster, shard: int, survivor: str, *lost: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it printed."""
    arguments = ["--node-dir", str(cluster_directory(cluster, survivor))]
    for node_id in lost:
        arguments += ["--lost", node_id]
    if shard == 0:
        command = cluster.command_of(cluster.plan.node(survivor))
        arguments += ["--peers", command[command.index("--peers") + 1]]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nextgen", "shards", "recover", str(shard), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.mark.timeout(300)
async def test_one_lost_disk_of_each_kind_is_rebuilt_by_itself(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, SIZE) as cluster:
        await given_topic(cluster, topic("kept"))

        for lost in ("shard-node-2", "cluster-manager-2"):
            await lose(cluster, lost)
            await cluster.start_node(lost)
        await cluster.wait_ready()
        # What was rebuilt is needed now: the third may go.
        for node_id in ("shard-node-3", "cluster-manager-3"):
            await cluster.kill(node_id)

        assert await lookup_epoch(cluster, topic("kept")) >= 1
        await create(cluster, topic("new"))


@pytest.mark.timeout(500)
async def test_the_last_survivors_go_on_when_two_disks_of_three_are_lost(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, SIZE) as cluster:
        await given_topic(cluster, topic("kept"))
        assert await lookup_epoch(cluster, topic("kept")) >= 1
        export = tmp_path / "export"
        await export_to(cluster, export)
        lost_nodes = ("shard-node-2", "shard-node-3")
        lost_managers = ("cluster-manager-2", "cluster-manager-3")

        # Refused while the survivor runs, and while a node named as lost answers.
        code, output = await recover(cluster, 1, "shard-node-1", *lost_nodes)
        assert (code, "is in use" in output) == (78, True), output
        await cluster.kill("shard-node-1")
        code, output = await recover(cluster, 1, "shard-node-1", *lost_nodes)
        assert (code, "answers at" in output) == (78, True), output

        await cluster.kill("cluster-manager-1")
        await lose(cluster, *lost_nodes, *lost_managers)
        for shard, survivor, lost in (
            (1, "shard-node-1", lost_nodes),
            (0, "cluster-manager-1", lost_managers),
        ):
            code, output = await recover(cluster, shard, survivor, lost[0])
            assert (code, "not declared lost" in output) == (78, True), output
            code, output = await recover(cluster, shard, survivor, *lost)
            assert (code, "May be missing" in output) == (0, True), output
            await cluster.start_node(survivor)

        epoch = await lookup_epoch(cluster, topic("kept"))
        await create(cluster, topic("new"))
        assert await lookup_epoch(cluster, topic("new")) >= 1 << GENERATION_BITS
        assert epoch >= 1
        with pytest.raises(ExportGap):
            await export_to(cluster, export)
        await export_to(cluster, export, accept_gap=True)
        assert names_in(export)["topic_created"] == {topic("kept"), topic("new")}
        for node_id in (*lost_nodes, *lost_managers):
            await cluster.start_node(node_id)
        await cluster.wait_ready()
        # All are voters again: the survivors are not needed any more.
        await _all_voters(cluster)
        for node_id in ("shard-node-1", "cluster-manager-1"):
            await cluster.kill(node_id)

        assert await lookup_epoch(cluster, topic("kept")) >= epoch
        await create(cluster, topic("last"))


async def export_to(cluster: LocalCluster, export: Path, *, accept_gap: bool = False) -> None:
    endpoints = list(cluster.plan.discovery_endpoints)
    await run_export(endpoints, str(export), cluster_id="test", accept_gap=accept_gap)


async def _all_voters(cluster: LocalCluster) -> None:
    """Return when both groups have three voters, as their leaders' log lines say."""
    async with timeout(PATIENCE_S):
        for node_id in ("shard-node-1", "cluster-manager-1"):
            while cluster.log_path(node_id).read_text().count("promote") < 2:
                await asyncio.sleep(0.5)


@pytest.mark.timeout(300)
async def test_when_all_disks_are_lost_an_export_gives_back_names_and_no_owners(
    tmp_path: Path,
) -> None:
    """``nextgen pipeline rebuild`` and ``bulk`` do this for millions; here without Spark."""
    export = tmp_path / "export"
    async with running_cluster(tmp_path / "before", MINIMAL) as cluster:
        await given_topic(cluster, topic("kept"))
        for _ in range(2):
            await lookup_epoch(cluster, topic("kept"))
        await export_to(cluster, export)
        await create(cluster, topic("behind-the-export"))
    shutil.rmtree(tmp_path / "before")

    exported = names_in(export)
    assert exported["tenant_created"] >= {"acme"}
    assert exported["namespace_created"] >= {NAMESPACE}
    assert topic("kept") in exported["topic_created"]

    async with (
        running_cluster(tmp_path / "after", MINIMAL) as cluster,
        Client(list(cluster.plan.discovery_endpoints)) as client,
    ):
        for tenant in exported["tenant_created"] - {"public", "pulsar"}:
            await client.create_tenant(tenant)
        for namespace in exported["namespace_created"] - {"public/default", "pulsar/system"}:
            await client.create_namespace(namespace)
        await client.create_topics(sorted(exported["topic_created"]))
        assert await lookup_epoch(cluster, topic("kept")) == 1, "owners are counted from 1 again"
        assert topic("behind-the-export") not in exported["topic_created"], "and it is gone"


def names_in(export: Path) -> dict[str, set[str]]:
    """Return the names that an export has, by the type of the event that made them."""
    found: dict[str, set[str]] = {}
    for path in sorted(export.rglob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            kind = row["event_type"]
            if kind in ("tenant_created", "namespace_created", "topic_created"):
                found.setdefault(kind, set()).add(row[kind]["name"])
    return found
