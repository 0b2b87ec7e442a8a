"""The demo's course: set up, load, four kinds of kills, verification."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from nextgen.cli.demo import names
from nextgen.cli.demo.timeline import Timeline
from nextgen.cli.demo.victims import busiest_shard_leader, fullest_broker, manager_leader
from nextgen.cli.demo.watcher import LeaderWatcher
from nextgen.cli.load.process import LoadProcess
from nextgen.cli.local_cluster import LocalCluster
from nextgen.cli.plan import ClusterSize, make_plan_on_free_ports
from nextgen.cli.status import gather_status
from nextgen.kernel.errors import DeadlineExceeded, MetadataError

DEMO_TIMEOUT_MS = 115_000
"""The demo ends by itself within two minutes, whatever happens."""

CALM_SECONDS = 4
DEAD_SECONDS = 3
BROKER_DEAD_SECONDS = 6
"""Longer than a session lasts, so that the broker's topics really move."""

RECOVER_SECONDS = 4
STATUS_ATTEMPTS = 20


async def run_demo(*, topics: int, is_quiet: bool) -> dict[str, Any]:
    """Run the demo in a directory of its own and return its result; ``is_good`` says how it went.

    Raises:
        MetadataError: It could not be carried out.
    """
    data_dir = Path(tempfile.mkdtemp(prefix="nextgen-demo-"))
    timeline = Timeline(is_quiet=is_quiet)
    is_good = False
    try:
        async with asyncio.timeout(DEMO_TIMEOUT_MS / 1000):
            async with LocalCluster(make_plan_on_free_ports(ClusterSize()), data_dir) as cluster:
                result = await _Demo(cluster, timeline, topics).run()
        is_good = not result["lost"] and not result["wrong"]
        timeline.verdict(result, is_good=is_good)
        return result | {"is_good": is_good}
    except TimeoutError:
        raise DeadlineExceeded(f"the demo was not over after {DEMO_TIMEOUT_MS} ms") from None
    finally:
        timeline.stop_pulse()
        if is_good:
            shutil.rmtree(data_dir, ignore_errors=True)
        else:
            timeline.happened("!", f"logs and data are kept in {data_dir}", "red")


class _Demo:
    def __init__(self, cluster: LocalCluster, timeline: Timeline, topics: int) -> None:
        self._cluster = cluster
        self._timeline = timeline
        self._topics = topics
        self._reached: dict[str, asyncio.Event] = {
            name: asyncio.Event()
            for name in ("parents_created", "bulk_created", "all_created", "verifying")
        }

    async def run(self) -> dict[str, Any]:
        plan = self._cluster.plan
        self._timeline.title("Pulsar NextGen: leaders die, nobody is told wrong")
        await self._cluster.wait_ready()
        size = plan.size
        self._timeline.happened(
            "▲",
            f"a cluster is up: {size.cluster_managers} cluster managers, {size.shard_nodes} shard "
            f"nodes with {size.shards} shards x {size.replication_factor} replicas, "
            f"{size.discovery} discovery nodes, {size.brokers} brokers",
            "bold",
        )
        watcher = LeaderWatcher(
            plan.cluster_id,
            plan.manager_endpoints.split(","),
            node_of=self._node_at,
            is_running=self._cluster.is_running,
            on_news=lambda text: self._timeline.happened("⇄", text, "yellow"),
        )
        await watcher.start()
        client = await LoadProcess.start(
            {
                "kind": "traffic",
                "targets": list(plan.discovery_endpoints),
                "topics": self._topics,
                "trickle": self._topics // 8,
            }
        )
        try:
            result = await self._with_client(client)
        finally:
            await client.stop()
            await watcher.stop()
        return result | {"leader_failovers": watcher.failovers}

    async def _with_client(self, client: LoadProcess) -> dict[str, Any]:
        working = asyncio.create_task(client.result(self._heard))
        try:
            await self._wait(working, "bulk_created")
            await self._chaos(working)
            await self._wait(working, "all_created")
            await asyncio.sleep(CALM_SECONDS)
            await client.request_stop()
            await self._wait(working, "verifying")
            self._timeline.stop_pulse()
            self._timeline.happened("?", "asking the cluster for everything it ever acknowledged")
            return await working
        finally:
            working.cancel()

    async def _chaos(self, working: asyncio.Task[dict[str, Any]]) -> None:
        await asyncio.sleep(CALM_SECONDS)
        node_id, shards = busiest_shard_leader(await self._status())
        await self._kill(node_id, f"leader of shards {shards}", DEAD_SECONDS)
        node_id = manager_leader(await self._status())
        await self._kill(node_id, "leader of the cluster manager", DEAD_SECONDS)
        await self._kill("discovery-1", "half of all lookups go through it", DEAD_SECONDS)
        broker_id, held = fullest_broker(await self._status())
        await self._kill(broker_id, f"serves {held:,} topics", BROKER_DEAD_SECONDS)
        if working.done():
            working.result()

    async def _kill(self, node_id: str, who: str, dead_seconds: float) -> None:
        await self._cluster.kill(node_id)
        self._timeline.happened("✖", f"kill -9 {node_id} ({who})", "bold red")
        await asyncio.sleep(dead_seconds)
        await self._cluster.start_node(node_id)
        self._timeline.happened("↻", f"{node_id} is started again", "cyan")
        await self._cluster.wait_ready([node_id])
        self._timeline.happened("✔", f"{node_id} is ready", "green")
        await asyncio.sleep(RECOVER_SECONDS)

    async def _status(self) -> dict[str, Any]:
        managers = [node.grpc for node in self._cluster.plan.of_kind("cluster-manager")]
        for attempt in range(STATUS_ATTEMPTS):
            try:
                return await gather_status(self._cluster.plan.discovery_endpoints, managers)
            except MetadataError:
                if attempt == STATUS_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(0.2)
        raise AssertionError("the last attempt returns or raises")

    async def _wait(self, working: asyncio.Task[dict[str, Any]], name: str) -> None:
        """Return when the client got that far; raise what it failed with."""
        reached = asyncio.create_task(self._reached[name].wait())
        await asyncio.wait({working, reached}, return_when=asyncio.FIRST_COMPLETED)
        if not reached.done():
            reached.cancel()
            working.result()

    def _heard(self, message: dict[str, Any]) -> None:
        if "tick" in message:
            self._timeline.pulse(message["tick"])
        event = message.get("event")
        if event is None:
            return
        self._reached[event].set()
        if event == "parents_created":
            self._timeline.happened(
                "+", f"{len(names.tenants())} tenants with {len(names.namespaces())} namespaces"
            )
        elif event == "bulk_created":
            self._timeline.happened(
                "+", f"{message['created']:,} topics; more follow while lookups run at 2,000/s"
            )
        elif event == "all_created":
            self._timeline.happened("+", f"{message['created']:,} topics, all acknowledged")

    def _node_at(self, endpoint: str) -> str:
        found = [node.node_id for node in self._cluster.plan.nodes if node.grpc == endpoint]
        return found[0] if found else endpoint
