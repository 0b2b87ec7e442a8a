"""``perf lookup``: warm lookups over LookupStream, optionally while topics move."""

from __future__ import annotations

from typing import Any

from nextgen.harness.load.topic_range import TopicRange
from nextgen.harness.perf.bench import SETUP_TIMEOUT_MS, Bench, check_count, grown, started_mover
from nextgen.runtime.lifecycle.exit_code import CheckFailed

NAMES_PER_MESSAGE = 64
WARM_SECONDS = 2
CHECK_EVERY_MOVING = 10
"""While topics move, one of this many responses is checked at the brokers, name by name."""

CHECK_EVERY_STILL = 100
LOOKUP_NAMES_COUNTER = "names_looked_up"


async def prepare_assigned(bench: Bench, topics: TopicRange) -> dict[str, Any]:
    """Create the range and have all of it assigned; return the duration of both.

    Raises:
        CheckFailed: Not all could be created, or assigned.
    """
    create_seconds = await bench.create_range(topics, in_flight=8)
    assigned = await bench.run(
        "lookup_all",
        "assigning topics",
        topics.count,
        topics=topics.as_json(),
        names_per_message=512,
        in_flight=8,
    )
    if assigned["errors"]:
        raise CheckFailed(f"{assigned['errors']} topics have no broker: {assigned['first_error']}")
    return {"create_seconds": create_seconds, "assign_seconds": assigned["seconds"]}


async def measure_lookup(
    bench: Bench,
    *,
    topics: int,
    seconds: float,
    streams: int,
    in_flight: int,
    moving_percent: float,
) -> dict[str, Any]:
    """Return the measurement of one discovery node.

    Raises:
        CheckFailed: An answer was wrong, or the counts disagree.
    """
    wanted = bench.topics("topic", topics)
    prepared = await prepare_assigned(bench, wanted)
    target = bench.targets[0]
    before = await bench.counters((target,))
    title = "looking up" + (" while topics move" if moving_percent else "")
    async with started_mover(bench, wanted, moving_percent) as moves:
        result = await bench.run(
            "lookup_stream",
            title,
            0,
            timeout_ms=int(SETUP_TIMEOUT_MS + seconds * 1000),
            target=target,
            topics=wanted.as_json(),
            seconds=seconds,
            warm_seconds=min(WARM_SECONDS, seconds),
            names_per_message=NAMES_PER_MESSAGE,
            streams=streams,
            in_flight=in_flight,
            check_every=CHECK_EVERY_MOVING if moving_percent else CHECK_EVERY_STILL,
        )
    counted = grown(before, await bench.counters((target,)), LOOKUP_NAMES_COUNTER)
    check_count("looked-up names", result["names_total"], counted)
    checked = result["checked"]
    report = {
        "benchmark": "lookup",
        "rate": round(result["names"] / result["seconds"]),
        "rate_unit": "names/s",
        **result["latency_ms"],
        "errors": result["errors"],
        "first_error": result["first_error"],
        "wrong": checked.get("wrong", 0),
        "checked": sum(checked.values()),
        "verdicts": checked,
        "names_counted_by_server": counted,
        "discovery_rss_mb": bench.memory_mb("discovery-1"),
        "moves": moves,
        "setup": {name: round(value, 2) for name, value in prepared.items()},
        "run": {
            "topics": topics,
            "seconds": seconds,
            "names_per_message": NAMES_PER_MESSAGE,
            "streams": streams,
            "messages_in_flight_per_stream": in_flight,
            "discovery_processes": 1,
            "moving_percent_per_second": moving_percent,
        },
    }
    if result["wrong"]:
        report["wrong_examples"] = result["wrong"]
    return report
