"""Warm lookups per second of CPU: a discovery process and a stock Pulsar broker, in one run.

Both are asked by the same generator with the same windows, one after the other, so that neither
takes a core from the other. The stock broker comes from Maven Central and runs standalone; where it
cannot run, the result says "no peer" and why. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import psutil

from benchmarks.support.stock.standalone import NoPeer, StockBroker
from nextgen.cli.local.plan import ClusterSize
from nextgen.harness.load.measure import summary_of_counts
from nextgen.harness.load.process import run_job
from nextgen.harness.load.topic_range import TopicRange
from nextgen.harness.perf.bench import bench
from nextgen.harness.perf.pulsar.lookup import LookupLoad, measure_pulsar_lookup

PEER_WARM_SECONDS = 30
"""For its compiler; a discovery process needs none."""


async def measure_peer(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the stock broker's numbers.

    Raises:
        NoPeer: It cannot run here.
    """
    with tempfile.TemporaryDirectory(prefix="nextgen-peer-") as directory:
        async with StockBroker(
            Path(directory),
            version=arguments.version,
            java=arguments.java,
            heap=arguments.heap,
        ) as broker:
            process = psutil.Process(broker.process_id)
            cpu_s: dict[str, float] = {}

            def hear(message: dict[str, Any]) -> None:
                if "event" in message:
                    cpu_s[message["event"]] = sum(process.cpu_times()[:2])

            topics = TopicRange("public/default", "topic", 0, arguments.topics)
            job = {
                "kind": "pulsar_lookup",
                "pulsar": f"127.0.0.1:{broker.port}",
                "brokers": [],
                "topics": topics.as_json(),
                "is_partition_metadata": False,
                "connections": arguments.connections,
                "in_flight": arguments.in_flight,
                "warm_seconds": PEER_WARM_SECONDS,
                "seconds": arguments.seconds,
                "check_every": 0,
            }
            result = await run_job(job, hear, timeout_ms=300_000)
    used_s = cpu_s["measured"] - cpu_s["measuring"]
    return {
        "version": arguments.version,
        "rate": round(result["answers"] / result["seconds"]),
        **summary_of_counts([result["latency_us"]]),
        "errors": result["errors"],
        "first_error": result["first_error"],
        "unexpected": result["unexpected"],
        "cpu_seconds": round(used_s, 3),
        "answers_per_core_second": round(result["answers"] / used_s),
    }


async def measure_ours(arguments: argparse.Namespace) -> dict[str, Any]:
    load = LookupLoad(
        topics=arguments.topics,
        seconds=arguments.seconds,
        connections=arguments.connections,
        in_flight=arguments.in_flight,
        workers=1,
        moving_percent=0,
        is_partition_metadata=False,
    )
    async with bench(None, ClusterSize()) as ready:
        report = await measure_pulsar_lookup(ready, load)
    return {
        "rate": report["rate"],
        **{name: report[name] for name in ("p50", "p99", "max", "errors", "wrong")},
        "cpu_seconds": report["discovery_cpu_seconds"],
        "answers_per_core_second": report["answers_per_discovery_core_second"],
    }


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    ours = await measure_ours(arguments)
    peer: dict[str, Any] | str
    ratio = None
    try:
        peer = await measure_peer(arguments)
        ratio = round(ours["answers_per_core_second"] / peer["answers_per_core_second"], 2)
    except NoPeer as reason:
        peer = f"no peer: {reason}"
    return {
        "benchmark": "pulsar_lookup_peer",
        "discovery": ours,
        "stock_broker": peer,
        "ours_to_theirs_per_core_second": ratio,
        "run": {
            "topics": arguments.topics,
            "connections": arguments.connections,
            "in_flight_per_connection": arguments.in_flight,
            "seconds": arguments.seconds,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="4.0.0", help="of org.apache.pulsar:pulsar-broker")
    parser.add_argument("--java", default="java", help="to run it with")
    parser.add_argument("--heap", default="2g")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10)
    print(json.dumps(asyncio.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
