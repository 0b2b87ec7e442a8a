"""SIGKILL of the broker that serves 100 topics: how long until their stock producers go on?

The default cluster; every topic is moved to the broker that is killed next. One process has 100
producers of the stock Python client that send steadily, another one their consumers. A producer's
gap is its longest time between two acknowledged sends that touches the seconds after the kill. All
acknowledged messages are accounted for at a consumer. Prints one JSON line last; exits with 1 if
one was lost, duplicated or out of order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nextgen.cli.discovery_client import DiscoveryClient, new_command_id
from nextgen.cli.load.measure import quantile
from nextgen.cli.load.traffic import Traffic, TrafficPlan
from nextgen.cli.local_cluster import LocalCluster
from nextgen.cli.plan import ClusterSize, make_plan_on_free_ports
from protos.nextgen.v1.discovery_service_pb2 import (
    CreateNamespaceRequest,
    CreateTenantRequest,
    CreateTopicsRequest,
    LookupRequest,
    MoveTopicsRequest,
)
from protos.nextgen.v1.shard_service_pb2 import TopicMove, TopicSpec

NAMESPACE = "kill/load"
MESSAGE_BYTES = 100
SETTLE_S = 5
DEAD_S = 3
WINDOW_MS = 8_000


async def _create(client: DiscoveryClient, topics: list[str]) -> None:
    tenant = NAMESPACE.partition("/")[0]
    await client.call("CreateTenant", CreateTenantRequest(command_id=new_command_id(), name=tenant))
    await client.call(
        "CreateNamespace", CreateNamespaceRequest(command_id=new_command_id(), name=NAMESPACE)
    )
    specs = [TopicSpec(name=topic) for topic in topics]
    response = await client.call(
        "CreateTopics", CreateTopicsRequest(command_id=new_command_id(), topics=specs)
    )
    assert not any(outcome.rejection_code for outcome in response.topics)


async def _gather_at(
    client: DiscoveryClient, traffic: Traffic, topics: list[str], broker_id: str
) -> None:
    """Move the topics that are not at the broker there, and make sure that all are."""
    answers = (await client.call("Lookup", LookupRequest(topics=topics))).answers
    moves = [
        TopicMove(topic=answer.topic, target_broker_id=broker_id)
        for answer in answers
        if answer.broker_id != broker_id
    ]
    if moves:
        began_s = time.monotonic()
        await client.call("MoveTopics", MoveTopicsRequest(moves=moves))
        traffic.topics_moved(began_s, time.monotonic())
    answers = (await client.call("Lookup", LookupRequest(topics=topics))).answers
    elsewhere = [answer.topic for answer in answers if answer.broker_id != broker_id]
    if elsewhere:
        raise SystemExit(f"{len(elsewhere)} topics are not at {broker_id}: {elsewhere[0]}")


async def _kill(
    cluster: LocalCluster, client: DiscoveryClient, traffic: Traffic, topics: list[str], place: int
) -> None:
    brokers = cluster.plan.of_kind("broker")
    victim = brokers[place % len(brokers)].node_id
    await _gather_at(client, traffic, topics, victim)
    await asyncio.sleep(SETTLE_S)
    killed_at_s = time.monotonic()
    await cluster.kill(victim)
    await traffic.broker_killed(killed_at_s, topics, window_ms=WINDOW_MS)
    await asyncio.sleep(DEAD_S)
    await cluster.start_node(victim)
    await cluster.wait_ready([victim])
    await asyncio.sleep(max(0.0, killed_at_s + WINDOW_MS / 1000 + 1 - time.monotonic()))
    traffic.check()


def _report(result: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    gaps = sorted(gap for strike in result["strikes"] for gap in strike["gaps_ms"])
    return {
        "benchmark": "pulsar_broker_kill",
        "gap_p50_ms": quantile(gaps, 0.50),
        "gap_p99_ms": quantile(gaps, 0.99),
        "gap_max_ms": quantile(gaps, 1.0),
        "by_kill": [
            {
                "in_flight": strike["in_flight"],
                "p50_ms": quantile(sorted(strike["gaps_ms"]), 0.50),
                "max_ms": quantile(sorted(strike["gaps_ms"]), 1.0),
            }
            for strike in result["strikes"]
        ],
        **{
            name: result[name]
            for name in (
                "sent",
                "received",
                "lost",
                "duplicated",
                "out_of_order",
                "redelivered",
                "failed",
                "unanswered",
                "examples",
            )
        },
        "run": {
            "topics": arguments.topics,
            "kills": arguments.kills,
            "interval_ms": arguments.interval_ms,
            "message_bytes": MESSAGE_BYTES,
            "client": "pulsar-client (Python), unbatched, send timeout off",
        },
    }


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    topics = [f"persistent://{NAMESPACE}/topic-{number:03d}" for number in range(arguments.topics)]
    plan = make_plan_on_free_ports(ClusterSize(), cluster_id="kill")
    with tempfile.TemporaryDirectory(prefix="nextgen-broker-kill-") as directory:
        async with LocalCluster(plan, Path(directory)) as cluster:
            await cluster.wait_ready()
            async with DiscoveryClient(plan.discovery_endpoints) as client:
                await _create(client, topics)
                traffic = Traffic(
                    TrafficPlan(
                        plan.service_url,
                        tuple(topics),
                        interval_ms=arguments.interval_ms,
                        message_bytes=MESSAGE_BYTES,
                        log_dir=cluster.data_dir / "logs",
                    )
                )
                try:
                    await traffic.start()
                    for place in range(arguments.kills):
                        await _kill(cluster, client, traffic, topics, place)
                    result = await traffic.finish()
                finally:
                    await traffic.stop()
    return _report(result, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--interval-ms", type=float, default=40, help="between a producer's sends")
    result = asyncio.run(measure(parser.parse_args()))
    print(json.dumps(result))
    if result["lost"] or result["duplicated"] or result["out_of_order"] or result["unanswered"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
