"""What permissions cost a warm lookup: in one process, and at two discovery nodes in one run.

python -m benchmarks.lookups.permission_check

``check_us``: the processor time that permissions add to a lookup on the fast path, one lookup per
read (``single``) and 64 (``bulk``), the median of rounds in turns.
``permitted_percent_of_open``: answers per core-second of a node with permissions, of those of a
node of the same cluster without. Clients of both have the same role, which they need not prove. The
same generator asks the nodes in turns, so that a busy machine slows both alike. Prints one JSON
line last.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from benchmarks.lookups.lookup_windows import ask, merged
from benchmarks.lookups.pulsar_codec import AtOneBroker, lookup
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize, NodePlan, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.client.permissions.session import WatchedAccess
from nextgen.client.permissions.table import PermissionTable
from nextgen.harness.perf.bench import Bench, make_namespace
from nextgen.harness.perf.lookup import prepare_assigned
from nextgen.kernel.governance.access import Action, Principal, Resource
from nextgen.kernel.governance.access_rules import AccessRules
from nextgen.kernel.governance.permissions import AuthAction, Permission
from nextgen.kernel.governance.policies import Policies
from nextgen.pulsar.lookups import answer_burst

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=2, brokers=1, shards=1)
ROLE = "bench"
GOAL_US = 1.0
LOOKUPS = 64 * 400
UNUSED_KEY = base64.b64encode(bytes(32)).decode()
OPEN, PERMITTED = "discovery-1", "discovery-2"


# In one process -----------------------------------------------------------------------------------


class NoStreams:
    """Superusers need no facts, so nothing is followed."""

    def stream(self, shard_id: int) -> Any:
        raise AssertionError("nobody asks")

    def shard_of_slot(self, slot: int) -> int:
        raise AssertionError("nobody asks")


def spent_s(reads: Sequence[bytes], access: WatchedAccess | None) -> float:
    """Return the processor time of all lookups, as a connection answers them."""
    known = AtOneBroker()
    began = time.thread_time()
    for data in reads:
        lookable: AbstractSet[bytes] | None = None if access is None else access.lookable
        answers: list[bytes] = []
        behind, _ = answer_burst(data, 0, known, 0.0, answers, lookable)
        assert behind == len(data)
    return time.thread_time() - began


async def check_us(rounds: int) -> dict[str, float]:
    nothing = NoStreams()
    table = PermissionTable(AccessRules(frozenset({ROLE})), nothing, nothing)
    access = table.session(Principal(ROLE), print)
    assert access.may_now(Action.LOOK_UP, Resource.topic("persistent://public/default/topic"))
    found = {}
    for name, per_read in (("single", 1), ("bulk", 64)):
        frames = [lookup(number) for number in range(LOOKUPS)]
        reads = [b"".join(frames[at : at + per_read]) for at in range(0, LOOKUPS, per_read)]
        more = [spent_s(reads, access) - spent_s(reads, None) for _ in range(rounds)]
        found[name] = round(statistics.median(more) / LOOKUPS * 1e6, 3)
    await table.stop()
    return found


# Through the port ---------------------------------------------------------------------------------


class TwoNodes(LocalCluster):
    """A cluster whose clients have a role, and need permissions at one of two discovery nodes."""

    def command_of(self, node: NodePlan) -> list[str]:
        command = super().command_of(node)
        if node.kind != "discovery":
            return command
        command += ["--authentication-enabled", "true", "--anonymous-user-role", ROLE]
        command += [
            "--token-secret-key",
            f"data:;base64,{UNUSED_KEY}",
        ]
        if node.node_id == PERMITTED:
            command += ["--authorization-enabled", "true"]
        return command


async def compare(
    bench: Bench, cluster: TwoNodes, arguments: argparse.Namespace, in_flight: int
) -> dict[str, Any]:
    parts: dict[str, list[dict[str, Any]]] = {OPEN: [], PERMITTED: []}
    for _ in range(arguments.rounds):
        for node_id, measured in parts.items():
            process_id, address = cluster.process_id(node_id), cluster.plan.node(node_id).pulsar
            measured.append(await ask(bench, process_id, address, arguments, in_flight))
    free, permitted = merged(parts[OPEN]), merged(parts[PERMITTED])
    share = 100 * permitted["answers_per_core_second"] / free["answers_per_core_second"]
    return {"open": free, "permitted": permitted, "permitted_percent_of_open": round(share, 1)}


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    in_process = await check_us(arguments.rounds * 3)
    with tempfile.TemporaryDirectory(prefix="nextgen-permissions-") as name:
        plan = make_plan_on_free_ports(SIZE)
        cluster = TwoNodes(plan, Path(name))
        async with cluster:
            await cluster.wait_ready()
            targets = (plan.node(OPEN).grpc,)
            namespace = await make_namespace(targets, "permissions")
            async with Client(targets, timeout_ms=30_000) as client:
                may_consume = Permission(ROLE, (AuthAction.CONSUME,))
                await client.set_policies(namespace, Policies(permissions=(may_consume,)))
            bench = Bench(targets, namespace, cluster, "")
            await prepare_assigned(bench, bench.topics("topic", arguments.topics))
            bulk = await compare(bench, cluster, arguments, arguments.in_flight)
            single = await compare(bench, cluster, arguments, 1)
    return {
        "benchmark": "permission_check",
        "check_us": in_process,
        "goal_us": GOAL_US,
        "bulk": bulk,
        "single": single,
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
