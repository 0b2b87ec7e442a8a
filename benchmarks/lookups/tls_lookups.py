"""Warm lookups per second of CPU over TLS and without, at one discovery process, in one run.

The process listens on both ports. The same generator asks the same topics with the same windows on
connections that are established, in turns, so that a busy machine slows both alike. ``bulk``: many
lookups per read, as after a restart of many clients; ``single``: one at a time per connection.
Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.lookups.lookup_windows import ask, merged
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize, NodePlan, make_plan_on_free_ports
from nextgen.cli.local.security import authority_file
from nextgen.harness.perf.bench import Bench, make_namespace
from nextgen.harness.perf.lookup import prepare_assigned

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=1, shards=1)
GOAL_PERCENT = 70


class BothPorts(LocalCluster):
    """A cluster with TLS whose discovery node speaks ``pulsar`` beside ``pulsar+ssl``."""

    @property
    def plain_address(self) -> str:
        # Discovery has no Raft port, so the one that its block of ports keeps for it is free.
        return self.plan.of_kind("discovery")[0].raft

    def command_of(self, node: NodePlan) -> list[str]:
        command = super().command_of(node)
        if node.kind != "discovery":
            return command
        return [*command, "--pulsar-listen", self.plain_address]


async def compare(
    bench: Bench, cluster: BothPorts, arguments: argparse.Namespace, in_flight: int
) -> dict[str, Any]:
    node = cluster.plan.of_kind("discovery")[0]
    process_id = cluster.process_id(node.node_id)
    parts: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for _ in range(arguments.rounds):
        for tls, measured in parts.items():
            address = node.pulsar if tls else cluster.plain_address
            ca_file = str(authority_file(cluster.data_dir)) if tls else ""
            measured.append(
                await ask(bench, process_id, address, arguments, in_flight, ca_file=ca_file)
            )
    plain, secured = merged(parts[False]), merged(parts[True])
    share = 100 * secured["answers_per_core_second"] / plain["answers_per_core_second"]
    return {"plain": plain, "tls": secured, "tls_percent_of_plain": round(share, 1)}


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="nextgen-tls-") as name:
        plan = replace(make_plan_on_free_ports(SIZE), tls=True)
        cluster = BothPorts(plan, Path(name))
        async with cluster:
            await cluster.wait_ready()
            targets = plan.discovery_endpoints
            bench = Bench(targets, await make_namespace(targets, "tls"), cluster, "")
            await prepare_assigned(bench, bench.topics("topic", arguments.topics))
            bulk = await compare(bench, cluster, arguments, arguments.in_flight)
            single = await compare(bench, cluster, arguments, 1)
    return {
        "benchmark": "tls_lookups",
        "bulk": bulk,
        "single": single,
        "goal_percent": GOAL_PERCENT,
        "load_average": os.getloadavg(),
        "run": {
            "topics": arguments.topics,
            "connections": arguments.connections,
            "in_flight_per_connection": arguments.in_flight,
            "seconds": arguments.seconds,
            "rounds": arguments.rounds,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    print(json.dumps(asyncio.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
