"""How long does the first producer of a topic wait that nobody has created?

The stock Python client, in a process of its own, makes a producer of one new name after the other
and sends one message: the topic is created, assigned, opened at its broker, and has its first
message on the disk. ``producer_ms`` is from the call until the producer is there,
``first_receipt_ms`` from the call until the message is acknowledged. All producers stay
open. Processor time is that of all servers, by kind, for one topic. Prints one JSON line last.

    python -m benchmarks.brokers.first_producer [--topics 200]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import defaultdict
from typing import Any

from nextgen.cli.local.cluster import child_environment
from nextgen.cli.local.plan import ClusterSize
from nextgen.harness.perf.bench import Bench, bench
from nextgen.runtime.security.cluster_proof import environment_of_child
from nextgen.tasks.timeouts import timeout

CLIENT_SECONDS_MAX = 300


def cpu_by_kind(cluster: Bench) -> dict[str, float]:
    """Return the seconds of processor time so far, of the servers of each kind."""
    used: defaultdict[str, float] = defaultdict(float)
    assert cluster.cluster is not None
    for node in cluster.cluster.plan.nodes:
        used[node.kind] += cluster.cpu_seconds(node.node_id) or 0.0
    return used


async def produce(cluster: Bench, topics: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Run the client; return its result, and the processor time of the servers meanwhile."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.support.first_sends"),
        *("--service-url", f"pulsar://{cluster.pulsar}"),
        *("--namespace", cluster.namespace),
        *("--topics", str(topics)),
        stdout=asyncio.subprocess.PIPE,
        env=environment_of_child(child_environment(lifeline=False)),
    )
    assert process.stdout is not None
    try:
        async with timeout(CLIENT_SECONDS_MAX):
            if not await process.stdout.readline():
                raise SystemExit(f"the client ended with code {await process.wait()}")
            before = cpu_by_kind(cluster)
            result = await process.stdout.readline()
            used = cpu_by_kind(cluster)
            if not result:
                raise SystemExit(f"the client ended with code {await process.wait()}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return json.loads(result), {kind: used[kind] - before[kind] for kind in used}


async def measure(topics: int) -> dict[str, Any]:
    async with bench(None, ClusterSize()) as cluster:
        events_before = await cluster.committed_events()
        result, used = await produce(cluster, topics)
        events = await cluster.committed_events() - events_before
    # Each topic was created and assigned, at least.
    assert events >= 2 * topics, f"{events} events for {topics} topics"
    return {
        "benchmark": "first_producer",
        "producer_ms": result["producer_ms"],
        "first_receipt_ms": result["first_receipt_ms"],
        "topics_per_s": round(topics / result["seconds"], 1),
        "server_cpu_ms_per_topic": {
            "all": round(sum(used.values()) / topics * 1e3, 3),
            **{kind: round(seconds / topics * 1e3, 3) for kind, seconds in sorted(used.items())},
        },
        "topics": topics,
        "load_average_after": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", type=int, default=200)
    print(json.dumps(asyncio.run(measure(parser.parse_args().topics))))


if __name__ == "__main__":
    main()
