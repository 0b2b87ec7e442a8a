"""``perf assign``: first lookups of topics that no broker serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.client.log.reader import read_events
from nextgen.harness.load.topic_range import TopicRange
from nextgen.harness.perf.bench import SETUP_TIMEOUT_MS, Bench, check_count
from nextgen.harness.perf.lookup import NAMES_PER_MESSAGE, WARM_SECONDS
from nextgen.harness.perf.node_counters import shard_counters
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.slots import SlotTable
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest

FIRST_TOPICS = 20
"""Topics assigned first: enough that each of a few brokers gets one."""

WARM_STREAMS = 2
WARM_IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class AssignLoad:
    """Size of the load. ``at_once`` names are looked up in one burst, ``burst`` names a message."""

    serial: int
    burst: int
    bursts: int
    concurrent: int
    at_once: int
    warm_seconds: float


async def measure_assign(bench: Bench, load: AssignLoad) -> dict[str, Any]:
    """Return the measurement: cold lookups one by one, in bursts one after the other, all at once,
    many of one topic; then the same topics when they are warm.

    Raises:
        CheckFailed: The concurrent lookups made more or less than one assignment, or the
            shards' logs did not grow by one event for each assignment.
    """
    one_by_one = bench.topics("serial", load.serial)
    in_bursts = bench.topics("burst", load.burst * load.bursts)
    at_once = bench.topics("at-once", load.at_once)
    one = bench.topics("one", 1)
    for topics in (one_by_one, in_bursts, at_once, one):
        await bench.create_range(topics, in_flight=4)
    await _begin_sessions(bench)

    before = await bench.committed_events()
    cold = await bench.run(
        "lookup_serial", "cold, one by one", load.serial, topics=one_by_one.as_json()
    )
    bursting = await bench.run(
        "lookup_bursts",
        "cold, in bursts",
        in_bursts.count,
        topics=in_bursts.as_json(),
        burst=load.burst,
    )
    burst = await _all_at_once(bench, at_once, load.burst)
    cost = burst.pop("cost")
    events = await bench.committed_events() - before
    runs = (cold, bursting, burst)
    errors = sum(run["errors"] for run in runs)
    check_count("assignments", sum(run["count"] for run in runs) - errors, events)
    together = await _one_topic(bench, one.name(0), load.concurrent)
    errors += together["errors"]
    problems = [run["first_error"] for run in (*runs, together)]
    return {
        "benchmark": "assign",
        "rate": round(burst["count"] / burst["seconds"]),
        "rate_unit": f"assignments/s, {load.at_once:,} names at once",
        **cold["latency_ms"],
        **{f"burst_{name}": value for name, value in burst["latency_ms"].items()},
        "messages_per_unit": cost,
        **spread_of(burst["units_by_broker"]),
        "one_after_the_other": {
            "rate": round(bursting["count"] / bursting["seconds"]),
            **bursting["latency_ms"],
        },
        "errors": errors,
        "first_error": next(filter(None, problems), ""),
        "refused_retryable": burst["refused"],
        "one_topic": {"lookups": load.concurrent, **together["told"]},
        "warm": await _warm(bench, at_once, load.warm_seconds),
        "events_counted_by_shards": events,
        "run": {
            "serial": load.serial,
            "burst": load.burst,
            "bursts": load.bursts,
            "at_once": load.at_once,
            "concurrent": load.concurrent,
            "discovery_processes": len(bench.targets),
        },
    }


async def _all_at_once(bench: Bench, topics: TopicRange, burst: int) -> dict[str, Any]:
    """Return the result of one burst, with its ``cost`` in messages between the servers."""
    before = await shard_counters(bench.targets)
    result = await bench.run(
        "lookup_at_once",
        "cold, all at once",
        topics.count,
        topics=topics.as_json(),
        names_per_message=burst,
    )
    grown = await shard_counters(bench.targets)
    grown.subtract(before)
    assigned = max(1, topics.count - result["errors"])
    return result | {
        "cost": {
            "controller_to_manager": round(grown["assign_requests"] / assigned, 4),
            "manager_to_broker": round(grown["delivery_messages"] / assigned, 4),
            # Whole calls, over all shards: requests for more units, and renewals.
            "cluster_manager_calls": grown["lease_growths"],
            "cluster_manager_renewals": grown["lease_requests"] - grown["lease_growths"],
        }
    }


def spread_of(units_by_broker: Mapping[str, int]) -> dict[str, Any]:
    """Return how evenly a burst of equal topics was spread over the brokers that got any."""
    counts = [*units_by_broker.values()] or [0]
    mean = sum(counts) / len(counts)
    return {
        "units_by_broker": dict(sorted(units_by_broker.items())),
        "units_max_by_mean": round(max(counts) / mean, 4) if mean else 0.0,
    }


async def _one_topic(bench: Bench, topic: str, concurrent: int) -> dict[str, Any]:
    result = await bench.run(
        "lookup_one_topic", "many of one topic", concurrent, topic=topic, count=concurrent
    )
    assignments = await _count_assignments(bench, topic)
    if assignments != 1 or len(result["owners"]) != 1:
        raise CheckFailed(
            f"{concurrent} concurrent first lookups made {assignments} assignments "
            f"and named {result['owners']}"
        )
    summary = {"assignments": assignments, "owners": result["owners"], **result["latency_ms"]}
    return result | {"told": summary}


async def _warm(bench: Bench, topics: TopicRange, seconds: float) -> dict[str, Any]:
    """Return the latencies of the same topics once they are assigned, at one discovery node."""
    result = await bench.run(
        "lookup_stream",
        "warm",
        0,
        timeout_ms=int(SETUP_TIMEOUT_MS + seconds * 1000),
        target=bench.targets[0],
        topics=topics.as_json(),
        seconds=seconds,
        warm_seconds=min(WARM_SECONDS, seconds),
        names_per_message=NAMES_PER_MESSAGE,
        streams=WARM_STREAMS,
        in_flight=WARM_IN_FLIGHT,
        check_every=0,
    )
    return {
        "rate": round(result["names"] / result["seconds"]),
        "rate_unit": "names/s",
        "errors": result["errors"],
        **result["latency_ms"],
    }


async def _begin_sessions(bench: Bench) -> None:
    """Assign a few topics, so that every broker has tenant and namespace."""
    topics = bench.topics("first", FIRST_TOPICS)
    await bench.create_range(topics, in_flight=4)
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
