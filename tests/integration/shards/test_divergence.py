"""A row of one replica is changed on its disk: verify names it, the comparison stops it, a restart
heals it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from nextgen.cli.calls.cluster_status import gather_status
from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize
from nextgen.cli.local.readiness import readiness
from nextgen.cli.shards.verify import VerifyReport, verify_shards
from nextgen.harness.load.jobs.create import create_topics
from nextgen.kernel.errors import Indefinite, Unavailable
from nextgen.kernel.limits.cluster import DIGEST_POSITIONS
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.discovery_service_pb2 import (
    CreateNamespaceRequest,
    CreateTenantRequest,
    DeleteRequest,
)
from tests.support.processes.local_cluster import running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ONE_SHARD = ClusterSize(cluster_managers=1, discovery=1, brokers=1, shards=1)
WAIT_DEADLINE_S = 60
ASKED_AGAIN_MAX = 20

T = TypeVar("T")


async def create(client: DiscoveryClient, first: int, count: int) -> None:
    for start in range(first, first + count, 500):
        names = [f"acme/orders/t-{n:06}" for n in range(start, min(start + 500, first + count))]
        refused = await create_topics(client, [f"persistent://{name}" for name in names])
        assert not refused


async def eventually(what: str, condition: Callable[[], object]) -> None:
    async with timeout(WAIT_DEADLINE_S):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.2)


async def answered(question: Callable[[Sequence[str]], Awaitable[T]], nodes: Sequence[str]) -> T:
    """Return what a person at the command line is told, who asks again if discovery is slow."""
    for _ in range(ASKED_AGAIN_MAX):
        try:
            return await question(nodes)
        except (Indefinite, Unavailable):
            await asyncio.sleep(0.2)
    return await question(nodes)


async def verified(nodes: Sequence[str]) -> VerifyReport:
    return await answered(verify_shards, nodes)


async def unready(cluster: LocalCluster, node_id: str, why: str) -> None:
    """Return once a process says that it is not ready, and why; a slow one is asked again."""
    async with timeout(WAIT_DEADLINE_S):
        while why not in (await readiness(cluster.plan.node(node_id).http))[1]:
            await asyncio.sleep(0.2)


def metrics(cluster: LocalCluster, node_id: str) -> str:
    url = f"http://{cluster.plan.node(node_id).http}/metrics"
    with urllib.request.urlopen(url, timeout=WAIT_DEADLINE_S) as answer:
        text: str = answer.read().decode()
        return text


def alarm(cluster: LocalCluster, node_id: str) -> bool:
    return 'nextgen_replication_diverged{shard="1"} 1.0' in metrics(cluster, node_id)


def spoil(cluster: LocalCluster, node_id: str, topic: str) -> None:
    """Change what one replica has on its disk of a topic, as a faulty disk or a person might."""
    (path,) = (cluster.data_dir / node_id / "group-1" / "view").glob("view.*.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None, timeout=WAIT_DEADLINE_S)) as stranger:
        changed = stranger.execute("UPDATE topics SET version = 77 WHERE name = ?", (topic,))
        assert changed.rowcount == 1


@pytest.mark.slow
@pytest.mark.parametrize("leads", [False, True], ids=["a follower", "the leader"])
async def test_a_changed_row_is_found_stops_its_replica_and_is_healed(
    tmp_path: Path, leads: bool
) -> None:
    async with running_cluster(tmp_path, ONE_SHARD) as cluster:
        endpoints = cluster.plan.discovery_endpoints
        async with DiscoveryClient(endpoints, timeout_ms=30_000) as client:
            for method, request in (
                ("CreateTenant", CreateTenantRequest(command_id=new_command_id(), name="acme")),
                (
                    "CreateNamespace",
                    CreateNamespaceRequest(command_id=new_command_id(), name="acme/orders"),
                ),
            ):
                await client.call(method, request)
            await create(client, 0, 1_000)
            assert not (await verified(endpoints)).differences
            (shard,) = (await answered(gather_status, endpoints))["shards"]
            odd = next(
                replica["node_id"]
                for replica in shard["replicas"]
                if (replica["node_id"] == shard["leader"]) is leads
            )
            topic = "persistent://acme/orders/t-000007"

            spoil(cluster, odd, topic)

            report = await verified(endpoints)
            assert len(report.differences) == 1
            assert odd in report.differences[0]
            assert "rows of its view" in report.differences[0]

            await client.call("DeleteTopic", DeleteRequest(command_id=new_command_id(), name=topic))
            await create(client, 1_000, DIGEST_POSITIONS)
            await eventually(f"{odd} raises the alarm", lambda: alarm(cluster, odd))
            await create(client, 10_000, 10)
            await unready(cluster, odd, "restart this node")
            report = await verified(endpoints)
            assert [odd in sentence for sentence in report.differences] == [True]
            assert "was not verified" in report.differences[0]

            await cluster.restart(odd)
            await cluster.wait_ready([odd])
            report = await verified(endpoints)
            assert report.differences == []
            assert len(report.results) == 3
            await create(client, 20_000, DIGEST_POSITIONS)
            nodes = [result.node_id for result in report.results]
            await eventually(
                "the alarm is over", lambda: not any(alarm(cluster, each) for each in nodes)
            )
