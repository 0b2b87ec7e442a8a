"""The demo's load on a small cluster: its broker is killed, and everything is accounted for."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.cli.local.plan import ClusterSize, make_plan_on_free_ports
from nextgen.harness.demo.topics import DemoTopics, served_by
from nextgen.harness.load.pulsar.traffic import Traffic, TrafficPlan
from tests.support.processes.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

TWO_BROKERS = ClusterSize(
    cluster_managers=1, shard_nodes=1, discovery=1, brokers=2, shards=1, capacity_units=1_000
)
WINDOW_MS = 1_000
IN_FLIGHT = 8


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_killed_broker_costs_no_message_its_order_or_a_second_copy(tmp_path: Path):
    topics = DemoTopics.choose(plain=4, partitioned=1, partitions=2)
    async with LocalCluster(make_plan_on_free_ports(TWO_BROKERS), tmp_path) as cluster:
        await cluster.wait_ready()
        traffic = Traffic(
            TrafficPlan(
                cluster.plan.service_url,
                tuple(topics.all),
                interval_ms=20,
                message_bytes=100,
                log_dir=tmp_path / "logs",
            )
        )
        async with DiscoveryClient(cluster.plan.discovery_endpoints) as client:
            await topics.create(client)
            try:
                await traffic.start()
                result = await _kill_and_finish(cluster, client, traffic, topics)
            finally:
                await traffic.stop()

    assert (result["lost"], result["duplicated"], result["out_of_order"]) == (0, 0, 0)
    assert (result["unknown"], result["failed"], result["unanswered"]) == (0, 0, 0)
    assert result["received"] == result["sent"] > 0
    strike = result["strikes"][0]
    assert strike["in_flight"] >= IN_FLIGHT
    assert all(gap < float("inf") for gap in strike["gaps_ms"])
    assert set(result["longest_wait_ms"]) == set(topics.all)


async def _kill_and_finish(
    cluster: LocalCluster, client: DiscoveryClient, traffic: Traffic, topics: DemoTopics
) -> dict[str, object]:
    served = {
        broker.node_id: await served_by(client, broker.node_id, topics.plain)
        for broker in cluster.plan.of_kind("broker")
    }
    victim = max(served, key=lambda broker_id: len(served[broker_id]))
    await traffic.press(served[victim], window=IN_FLIGHT)
    await traffic.wait_in_flight(IN_FLIGHT)
    # Frozen it acknowledges nothing more, so what is in flight stays so. Twice what pressing alone
    # keeps in flight: most of it was sent to the frozen broker.
    cluster.strike(victim, signal.SIGSTOP)
    await traffic.wait_in_flight(2 * IN_FLIGHT * len(served[victim]))
    killed_at_s = time.monotonic()
    await cluster.kill(victim)
    await traffic.broker_killed(killed_at_s, served[victim], window_ms=WINDOW_MS)
    await cluster.start_node(victim)
    await cluster.wait_ready([victim])
    await asyncio.sleep(max(0.0, killed_at_s + 4 - time.monotonic()))
    traffic.check()
    return await traffic.finish()
