"""The demo's course: set up, load, three kills, verification.

The load is two processes with stock Pulsar clients that know only discovery's addresses: one
produces on every topic, one consumes. ``nextgen.harness.load.pulsar.delivery_record`` defines lost,
duplicated and out of order; every acknowledged message is accounted for. A kill is SIGKILL; the
killed process starts again with the same directories.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from nextgen.cli.calls.cluster_status import gather_status
from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize, make_plan_on_free_ports
from nextgen.harness.demo.timeline import Timeline
from nextgen.harness.demo.topics import DemoTopics, homed_in, places_of
from nextgen.harness.demo.verdict import IN_FLIGHT_WANTED, complaints_about
from nextgen.harness.demo.victims import (
    ShadowRoles,
    busiest_shard_leader,
    fullest_broker,
    manager_leader,
    shadow_roles,
)
from nextgen.harness.demo.watcher import LeaderWatcher
from nextgen.harness.load.pulsar.traffic import Traffic, TrafficPlan
from nextgen.kernel.errors import DeadlineExceeded, MetadataError
from nextgen.tasks.timeouts import timeout

DEMO_TIMEOUT_MS = 115_000
"""Time-out from the first message to the verdict."""

PLAIN_TOPICS = 40
PARTITIONED_TOPICS = 10
PARTITIONS = 4
SHADOWS = 10
"""So many that each shard has the metadata of some, and some broker serves both shadows and sources
of others."""

MESSAGE_BYTES = 100
SEND_INTERVAL_MS = 40
PRESS_WINDOW = 32
RUSH_SECONDS = 0.5
"""Load before the kill, so that the broker dies while it writes, fsyncs and acknowledges."""

CALM_SECONDS = 4
DEAD_SECONDS = 3
RECOVER_SECONDS = 4
STRIKE_WINDOW_MS = 4_000
"""Time after the broker's death in which a gap counts as caused by it."""

STATUS_ATTEMPTS = 20


async def run_demo(*, is_quiet: bool) -> dict[str, Any]:
    """Run the demo in a directory of its own and return its result.

    ``complaints`` in it is empty if everything went as promised.

    Raises:
        MetadataError: It could not be carried out.
    """
    data_dir = Path(tempfile.mkdtemp(prefix="nextgen-demo-"))
    timeline = Timeline(is_quiet=is_quiet)
    is_good = False
    try:
        async with LocalCluster(make_plan_on_free_ports(ClusterSize()), data_dir) as cluster:
            result = await _Demo(cluster, timeline).run()
        result["complaints"] = complaints_about(result)
        is_good = not result["complaints"]
        timeline.verdict(result, is_good=is_good)
        return result
    finally:
        timeline.stop_pulse()
        if is_good:
            shutil.rmtree(data_dir, ignore_errors=True)
        else:
            timeline.happened("!", f"logs and data are kept in {data_dir}", "red")


class _Demo:
    def __init__(self, cluster: LocalCluster, timeline: Timeline) -> None:
        self._cluster = cluster
        self._timeline = timeline
        self._kills = 0
        self._topics = DemoTopics.choose(
            plain=PLAIN_TOPICS,
            partitioned=PARTITIONED_TOPICS,
            partitions=PARTITIONS,
            shadows=SHADOWS,
        )
        self._struck: dict[str, int] = {}
        """By what was killed: how many shadows it served, or fed, or whose metadata it led."""

        plan = TrafficPlan(
            cluster.plan.service_url,
            tuple(self._topics.all),
            interval_ms=SEND_INTERVAL_MS,
            message_bytes=MESSAGE_BYTES,
            log_dir=cluster.data_dir / "logs",
            shadows=self._topics.shadows,
        )
        self._traffic = Traffic(plan, on_tick=timeline.pulse)

    async def run(self) -> dict[str, Any]:
        plan = self._cluster.plan
        self._timeline.title("Pulsar NextGen: leaders and brokers die, no message does")
        watcher = LeaderWatcher(
            plan.cluster_id,
            plan.manager_endpoints.split(","),
            node_of=self._node_at,
            is_running=self._cluster.is_running,
            on_news=lambda text: self._timeline.happened("⇄", text, "yellow"),
        )
        await self._cluster.wait_ready()
        self._tell_size()
        await watcher.start()
        try:
            async with DiscoveryClient(plan.discovery_endpoints) as client:
                await self._set_up(client)
                async with timeout(DEMO_TIMEOUT_MS / 1000):
                    await self._chaos(client)
                    result = await self._verify()
        except TimeoutError:
            raise DeadlineExceeded(f"the demo was not over after {DEMO_TIMEOUT_MS} ms") from None
        finally:
            await self._traffic.stop()
            await watcher.stop()
        return result | {
            "leader_failovers": watcher.failovers,
            "kills": self._kills,
            "shadows_struck": self._struck,
        }

    def _tell_size(self) -> None:
        size = self._cluster.plan.size
        self._timeline.happened(
            "▲",
            f"a cluster is up: {size.cluster_managers} cluster managers, {size.shard_nodes} shard "
            f"nodes with {size.shards} shards x {size.replication_factor} replicas, "
            f"{size.discovery} discovery nodes, {size.brokers} brokers",
            "bold",
        )

    async def _set_up(self, client: DiscoveryClient) -> None:
        topics = self._topics
        await topics.create(client)
        self._timeline.happened(
            "+",
            f"{len(topics.plain)} topics, {len(topics.partitioned)} with {topics.partitions} "
            f"partitions each, and shadows of {len(topics.shadows)}: {topics.unit_count} to be "
            "served",
        )
        await self._traffic.start()
        self._timeline.happened(
            "+",
            f"stock pulsar-client: {len(topics.all)} producers in one process, "
            f"{len(topics.all) + len(topics.shadows)} consumers in another, given "
            f"{self._cluster.plan.service_url}",
        )

    async def _chaos(self, client: DiscoveryClient) -> None:
        await asyncio.sleep(CALM_SECONDS)
        node_id, shards = busiest_shard_leader(await self._status())
        self._struck["led"] = len(await homed_in(client, shards, list(self._topics.shadows)))
        await self._kill(node_id, f"leader of shards {shards}")
        await self._revive(node_id)
        node_id = manager_leader(await self._status())
        await self._kill(node_id, "leader of the cluster manager")
        await self._revive(node_id)
        await self._revive(await self._kill_broker(client))

    async def _kill_broker(self, client: DiscoveryClient) -> str:
        """Kill the fullest of those that serve shadows and sources of others, in the middle of a
        rush at the plain topics that it serves. Return its id."""
        shadows = self._topics.shadows
        places = await places_of(client, [*self._topics.plain, *shadows])
        roles = shadow_roles(places, shadows)
        preferred = {broker_id for broker_id, role in roles.items() if role.has_both}
        broker_id, held = fullest_broker(await self._status(), preferred)
        served = [topic for topic in self._topics.plain if places[topic] == broker_id]
        role = roles.get(broker_id, ShadowRoles())
        self._struck |= {"served": role.served, "fed": role.fed}
        self._timeline.happened(
            "»", f"a rush: {PRESS_WINDOW} sends kept in flight on each of {len(served)} topics"
        )
        await self._traffic.press(served, window=PRESS_WINDOW)
        await asyncio.sleep(RUSH_SECONDS)
        await self._traffic.wait_in_flight(2 * IN_FLIGHT_WANTED)
        killed_at_s = await self._kill(
            broker_id,
            f"serves {held:,} topics and partitions, {role.served} of them shadows, and the "
            f"sources of {role.fed} others",
        )
        await self._traffic.broker_killed(killed_at_s, served, window_ms=STRIKE_WINDOW_MS)
        return broker_id

    async def _kill(self, node_id: str, who: str) -> float:
        """Return the moment of the kill, on the monotonic clock."""
        killed_at_s = time.monotonic()
        await self._cluster.kill(node_id)
        self._kills += 1
        self._timeline.happened("✖", f"kill -9 {node_id} ({who})", "bold red")
        return killed_at_s

    async def _revive(self, node_id: str) -> None:
        await asyncio.sleep(DEAD_SECONDS)
        await self._cluster.start_node(node_id)
        self._timeline.happened("↻", f"{node_id} is started again", "cyan")
        await self._cluster.wait_ready([node_id])
        self._timeline.happened("✔", f"{node_id} is ready", "green")
        await asyncio.sleep(RECOVER_SECONDS)
        self._traffic.check()

    async def _verify(self) -> dict[str, Any]:
        self._timeline.stop_pulse()
        self._timeline.happened("?", "no more sends; waiting for all that was acknowledged")
        result = await self._traffic.finish()
        strike = result["strikes"][0]
        waits = result["longest_wait_ms"]
        return result | {
            "in_flight_at_kill": strike["in_flight"],
            "broker_gap_ms": round(max(strike["gaps_ms"])),
            "max_publish_gap_ms": round(max(waits.values())),
        }

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

    def _node_at(self, endpoint: str) -> str:
        found = [node.node_id for node in self._cluster.plan.nodes if node.grpc == endpoint]
        return found[0] if found else endpoint
