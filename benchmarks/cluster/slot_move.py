"""How long does a move of slots with 25,000 topics take, and how long does a command wait for it?

    python -m benchmarks.cluster.slot_move [--topics 25000] [--assigned 2000] [--rounds 2]

A cluster of real processes with two shards of three replicas (default settings, fsync). The topics
have names whose slots move together; some are looked up before, so that assignments move too. Then
the slots go to the other shard and back, as often as asked. All the while clients create, look up
and set properties of topics in these slots, each operation timed from its first attempt to its
answer. Before the first move the shards have told their sizes, or the plan would take many moves.

- ``move_s``: from the plan to its end, rows removed included, each move
- ``adopted_s``: from the plan to the adoption, which clients notice, each move
- ``frozen_ms``: from the target's question for the release to its committed adoption, each move
- ``waits_ms_*``: of the operations that were under way in the second around an adoption
- ``operation_ms_*``: of all operations; ``failed``, ``lost``

Exits with 1 with ``--check`` if a promise is broken: 10 s, 100 ms, nothing failed or lost. One JSON
line last.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.support.slot_load import SlotLoad, adoptions, quantile
from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.cli.shards.slot_plans import follow, get_plans, plan_slots
from nextgen.client import Client
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.slots import SlotTable
from protos.nextgen.v1.cluster_service_pb2 import PlanSlotsRequest
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest
from protos.nextgen.v1.events_pb2 import SlotRange
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

MOVE_S_MAX = 10.0
WAIT_MS_MAX = 100.0
SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=2, shards=2)
NAMESPACE = "slots/moving"
SLOTS = 512
CREATED_AT_ONCE = 500
LOOKED_UP_AT_ONCE = 200
SIZES_KNOWN_S = 25.0
TIMEOUT_MS = 30_000


def names_in(slots: frozenset[int]) -> Iterator[str]:
    """Yield names of topics of these slots."""
    for number in itertools.count():
        local = f"customer-{number:09d}"
        if slot_of(f"{NAMESPACE}/{local}") in slots:
            yield f"persistent://{NAMESPACE}/{local}"


async def owner_of(cluster: LocalCluster, slot: int) -> int:
    async with DiscoveryClient(list(cluster.plan.discovery_endpoints)) as discovery:
        known: Any = await discovery.call("GetCluster", GetClusterRequest())
    table = SlotTable.from_bytes(known.shard_map.version, known.shard_map.slot_owners)
    return table.owners[slot]


async def move(cluster: LocalCluster, slots: frozenset[int], target: int) -> tuple[float, int]:
    """Move the slots; return the seconds that it took, and the moves of which it was made."""
    endpoints = list(cluster.plan.discovery_endpoints)
    ranges = [SlotRange(first=slot, last=slot) for slot in sorted(slots)]
    request = PlanSlotsRequest(kind="move_slots", into_shard=target, ranges=ranges)
    began = time.perf_counter()
    plan = await plan_slots(endpoints, request)
    ended = await follow(endpoints, plan.plan.plan_id, 120_000, lambda _plan: None)
    return time.perf_counter() - began, ended.moves_done


async def fill(client: Client, names: list[str], assigned: int) -> None:
    await client.create_tenant(NAMESPACE.partition("/")[0])
    await client.create_namespace(NAMESPACE)
    for start in range(0, len(names), CREATED_AT_ONCE):
        await client.create_topics(names[start : start + CREATED_AT_ONCE])
    for start in range(0, assigned, LOOKED_UP_AT_ONCE):
        await client.lookup(names[start : start + LOOKED_UP_AT_ONCE])


async def measure(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    async with running_cluster(directory, SIZE) as cluster:
        async with DiscoveryClient(list(cluster.plan.discovery_endpoints)) as discovery:
            known: Any = await discovery.call("GetCluster", GetClusterRequest())
        table = SlotTable.from_bytes(known.shard_map.version, known.shard_map.slot_owners)
        slots = frozenset(table.slots_of(1)[:SLOTS])
        fresh = names_in(slots)
        names = list(itertools.islice(fresh, options.topics))
        async with Client(list(cluster.plan.discovery_endpoints), timeout_ms=TIMEOUT_MS) as client:
            await fill(client, names, options.assigned)
            print(json.dumps({"filled": len(names)}), flush=True)
            await asyncio.sleep(SIZES_KNOWN_S)
            load = SlotLoad(client, names, fresh)
            working = asyncio.create_task(load.run())
            await asyncio.sleep(2.0)
            moves = []
            for _ in range(options.rounds):
                began = time.time()
                target = 3 - await owner_of(cluster, min(slots))
                seconds, parts = await move(cluster, slots, target)
                moves.append((began, seconds, parts))
                print(json.dumps({"move_s": round(seconds, 2), "moves": parts}), flush=True)
                await asyncio.sleep(2.0)
            load.stop()
            await working
            lost = await load.lost(names)
        adopted = adoptions(cluster)
        await get_plans(list(cluster.plan.discovery_endpoints))
    near, every = load.waits_ms(adopted), load.all_ms()
    frozen = [each for _, each, _ in adopted]
    return {
        "question": "slot_move",
        "topics": options.topics,
        "assigned": options.assigned,
        "moves": len(adopted),
        "rows": [rows for _, _, rows in adopted],
        "move_s": [round(seconds, 2) for _, seconds, _ in moves],
        "adopted_s": [
            round(max(at for at, _, _ in adopted if began <= at <= began + seconds) - began, 2)
            for began, seconds, _ in moves
        ],
        "frozen_ms": [round(each, 1) for each in frozen],
        "frozen_ms_p50": quantile(frozen, 0.5),
        "frozen_ms_p99": quantile(frozen, 0.99),
        "waits": len(near),
        "waits_ms_p50": quantile(near, 0.5),
        "waits_ms_p99": quantile(near, 0.99),
        "waits_ms_max": quantile(near, 1.0),
        "operations": len(every),
        "operation_ms_p50": quantile(every, 0.5),
        "operation_ms_p99": quantile(every, 0.99),
        "failed": len(load.failures),
        "first_failures": load.failures[:3],
        "lost": lost,
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", type=int, default=25_000)
    parser.add_argument("--assigned", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nextgen-slots-") as directory:
        measured = asyncio.run(measure(Path(directory), options))
    print(json.dumps(measured))
    is_kept = (
        max(measured["move_s"]) <= MOVE_S_MAX
        and measured["frozen_ms_p99"] <= WAIT_MS_MAX
        and not measured["failed"]
        and not measured["lost"]
    )
    sys.exit(bool(options.check and not is_kept))


if __name__ == "__main__":
    main()
