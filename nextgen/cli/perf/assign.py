"""``perf assign``: first lookups of topics that no broker serves."""

from __future__ import annotations

from typing import Any

from nextgen.cli.discovery_client import DiscoveryClient
from nextgen.cli.exit_code import CheckFailed
from nextgen.cli.load.topic_range import TopicRange
from nextgen.cli.perf.bench import Bench, check_count
from nextgen.client.event_log import read_events
from nextgen.kernel.limits import TOPICS_PER_CREATE_MAX
from nextgen.kernel.names import parse_topic
from nextgen.kernel.slots import SlotTable
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest

FIRST_TOPICS = 20
"""Enough that each of a few brokers gets one."""


async def measure_assign(
    bench: Bench, *, serial: int, burst: int, bursts: int, concurrent: int
) -> dict[str, Any]:
    """Return the measurement: cold lookups one by one, in bursts, and many of one topic.

    Raises:
        CheckFailed: The concurrent lookups made another number of assignments than one, or the
            shards' logs did not grow by one event for each assignment.
    """
    one_by_one = bench.topics("serial", serial)
    in_bursts = bench.topics("burst", burst * bursts)
    one = bench.topics("one", 1)
    await _create(bench, one_by_one, in_bursts, one)
    await _begin_sessions(bench)

    before = await bench.committed_events()
    cold = await bench.run("lookup_serial", "cold, one by one", serial, topics=one_by_one.as_json())
    bursting = await bench.run(
        "lookup_bursts",
        "cold, in bursts",
        in_bursts.count,
        topics=in_bursts.as_json(),
        burst=burst,
    )
    events = await bench.committed_events() - before
    errors = cold["errors"] + bursting["errors"]
    check_count("assignments", cold["count"] + bursting["count"] - errors, events)

    topic = one.name(0)
    together = await bench.run(
        "lookup_one_topic", "many of one topic", concurrent, topic=topic, count=concurrent
    )
    assignments = await _count_assignments(bench, topic)
    if assignments != 1 or len(together["owners"]) != 1:
        raise CheckFailed(
            f"{concurrent} concurrent first lookups made {assignments} assignments "
            f"and named {together['owners']}"
        )
    return {
        "benchmark": "assign",
        "rate": round(bursting["count"] / bursting["seconds"]),
        "rate_unit": "assignments/s in bursts",
        **cold["latency_ms"],
        **{f"burst_{name}": value for name, value in bursting["latency_ms"].items()},
        "errors": errors + together["errors"],
        "first_error": cold["first_error"] or bursting["first_error"] or together["first_error"],
        "one_topic": {
            "lookups": concurrent,
            "assignments": assignments,
            "owners": together["owners"],
            **together["latency_ms"],
        },
        "events_counted_by_shards": events,
        "run": {
            "serial": serial,
            "burst": burst,
            "bursts": bursts,
            "concurrent": concurrent,
            "discovery_processes": len(bench.targets),
        },
    }


async def _create(bench: Bench, *ranges: TopicRange) -> None:
    for topics in ranges:
        created = await bench.run(
            "create_batched",
            "creating topics",
            topics.count,
            topics=topics.as_json(),
            batch=TOPICS_PER_CREATE_MAX,
            in_flight=4,
        )
        if created["errors"]:
            raise CheckFailed(f"creates were refused: {created['first_error']}")


async def _begin_sessions(bench: Bench) -> None:
    """Assign a few topics, so that every broker has been sent tenant and namespace once."""
    topics = bench.topics("first", FIRST_TOPICS)
    await _create(bench, topics)
    await bench.run("lookup_serial", "first of the session", FIRST_TOPICS, topics=topics.as_json())


async def _count_assignments(bench: Bench, topic: str) -> int:
    """Return how many TopicAssigned events of the topic are in the log of its shard."""
    async with DiscoveryClient(bench.targets) as client:
        cluster = await client.call("GetCluster", GetClusterRequest())
    table = SlotTable.from_bytes(cluster.shard_map.version, cluster.shard_map.slot_owners)
    shard_id = table.shard_for_key(parse_topic(topic).routing_key)
    count = 0
    async for event in read_events(bench.targets, shard_id, types=["topic_assigned"]):
        count += event.topic_assigned.name == topic
    return count
