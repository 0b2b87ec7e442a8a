"""``perf assign``: first lookups of topics that no broker serves."""

from __future__ import annotations

from typing import Any

from nextgen.cli.discovery_client import DiscoveryClient
from nextgen.cli.event_reader import read_events
from nextgen.cli.exit_code import CheckFailed
from nextgen.cli.perf.bench import Bench, check_count
from nextgen.kernel.limits import TOPICS_PER_CREATE_MAX
from nextgen.kernel.names import parse_topic
from nextgen.kernel.slots import SlotTable
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest


async def measure_assign(
    bench: Bench, *, serial: int, burst: int, bursts: int, concurrent: int
) -> dict[str, Any]:
    """Return the measurement: cold lookups one by one, in bursts, and many of one topic.

    Raises:
        CheckFailed: The concurrent lookups made another number of assignments than one, or the
            shards' logs did not grow by one event for each assignment.
    """
    parts = {
        "serial": bench.topics("serial", serial),
        "burst": bench.topics("burst", burst * bursts),
        "one": bench.topics("one", 1),
        # The first assignments of a session also carry tenant and namespace to the broker.
        "first": bench.topics("first", 20),
    }
    for part in parts.values():
        created = await bench.run(
            "create_batched",
            "creating topics",
            part.count,
            topics=part.as_json(),
            batch=TOPICS_PER_CREATE_MAX,
            in_flight=4,
        )
        if created["errors"]:
            raise CheckFailed(f"creates were refused: {created['first_error']}")
    topics = parts["first"].as_json()
    await bench.run("lookup_serial", "first of the session", parts["first"].count, topics=topics)
    before = await bench.committed_events()
    one_by_one = await bench.run(
        "lookup_serial", "cold, one by one", serial, topics=parts["serial"].as_json()
    )
    in_bursts = await bench.run(
        "lookup_bursts",
        "cold, in bursts",
        parts["burst"].count,
        topics=parts["burst"].as_json(),
        burst=burst,
    )
    events = await bench.committed_events() - before
    served = one_by_one["count"] + in_bursts["count"] - one_by_one["errors"] - in_bursts["errors"]
    topic = parts["one"].name(0)
    together = await bench.run(
        "lookup_one_topic", "many of one topic", concurrent, topic=topic, count=concurrent
    )
    assignments = await _count_assignments(bench, topic)
    report = {
        "benchmark": "assign",
        "rate": round(in_bursts["count"] / in_bursts["seconds"]),
        "rate_unit": "assignments/s in bursts",
        **one_by_one["latency_ms"],
        "burst_p50": in_bursts["latency_ms"]["p50"],
        "burst_p99": in_bursts["latency_ms"]["p99"],
        "burst_max": in_bursts["latency_ms"]["max"],
        "errors": one_by_one["errors"] + in_bursts["errors"] + together["errors"],
        "first_error": one_by_one["first_error"]
        or in_bursts["first_error"]
        or together["first_error"],
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
    check_count("assignments", served, events)
    if assignments != 1 or len(together["owners"]) != 1:
        raise CheckFailed(
            f"{concurrent} concurrent first lookups made {assignments} assignments "
            f"and named {together['owners']}"
        )
    return report


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
