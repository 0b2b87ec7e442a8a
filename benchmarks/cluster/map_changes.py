"""What one change of the shard map costs: as its difference, and as the whole map.

A leading cluster manager on a log in memory, with its real view in SQLite, and the views of all
nodes, in this process. Each change adds a replica to a shard. The whole map is measured as a
release before differences has it: nodes take none, and a replica of the manager's log knows none.
Both ways make the same changes, in turns. Prints one JSON line last.

    python -m benchmarks.cluster.map_changes [--nodes 100] [--shards 1000] [--changes 100] [--check]

``--check`` fails unless a difference costs at most a twentieth of the bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from cluster_manager.adapters.stored_view import StoredView, open_view_store
from cluster_manager.domain.cluster import FirstMapPlan
from cluster_manager.service.connection import NodeConnection
from cluster_manager.service.replica import ClusterManager
from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.events.levels import EVENT_LEVEL
from nextgen.replication.ports import CLUSTER_MANAGER_GROUP_ID, NodeId
from protos.nextgen.v1.cluster_service_pb2 import (
    ChangeReplicasRequest,
    ClusterUpdate,
    Hello,
    LeaderReport,
    NodeHeartbeat,
    NodeMessage,
)
from tests.support.logs.memory_log import MemoryLog

MANAGERS = {f"cm-{number}": f"cm-{number}:1" for number in (1, 2, 3)}
REPLICATION_FACTOR = 3
ADD = ChangeReplicasRequest.CHANGE_ADD
BYTES_RATIO_MAX = 0.05


class NoGrants:
    """There are no brokers."""

    async def grant(self, *, broker_id: str, session_id: str, units: int) -> int:
        raise AssertionError(f"{broker_id} was asked for {units} units of {session_id}")


class StandingClock:
    """Time stands still: nobody is ever silent, and no leader is asked to move."""

    def unix_ms(self) -> int:
        return 1

    def monotonic_ms(self) -> int:
        return 1

    def call_at(self, _monotonic_ms: int, _callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


@dataclass(slots=True)
class Costs:
    """Sums over all changes. Seconds are processor time of this process."""

    changes: int = 0
    log_bytes: int = 0
    sent_bytes: int = 0
    manager_s: float = 0.0
    nodes_s: float = 0.0

    def per_change(self, nodes: int) -> dict[str, Any]:
        """Return what one change costs."""
        return {
            "log_bytes": round(self.log_bytes / self.changes),
            "sent_bytes_all_nodes": round(self.sent_bytes / self.changes),
            "sent_bytes_per_node": round(self.sent_bytes / self.changes / nodes),
            "manager_cpu_ms": round(1_000 * self.manager_s / self.changes, 3),
            "node_cpu_ms": round(1_000 * self.nodes_s / self.changes / nodes, 4),
        }


class Cluster:
    """A manager and the views of its nodes. ``has_deltas``: everyone knows differences."""

    def __init__(self, directory: Path, nodes: int, shards: int, *, has_deltas: bool) -> None:
        self.costs = Costs()
        self._has_deltas = has_deltas
        self._names = [f"shard-node-{number:03}" for number in range(1, nodes + 1)]
        store = open_view_store(directory)
        self._log = MemoryLog(
            store,
            group_id=CLUSTER_MANAGER_GROUP_ID,
            node_id=NodeId("cm-1"),
            members=[NodeId(name) for name in MANAGERS],
        )
        if not has_deltas:
            self._log.event_levels[NodeId("cm-3")] = EVENT_LEVEL - 1
        self._manager = ClusterManager(
            node_id="cm-1",
            cluster_id="benchmark",
            endpoints=MANAGERS,
            plan=FirstMapPlan(nodes, shards, REPLICATION_FACTOR),
            log=self._log,
            view=StoredView(store),
            grantor=NoGrants(),
            clock=StandingClock(),
            on_update=ClusterView().apply,
        )
        self._connections: list[NodeConnection] = []
        self._views = [ClusterView() for _ in self._names]

    async def start(self) -> None:
        """Join all nodes, have every shard led, and bring every view up to date."""
        self._manager.start()
        for name in self._names:
            hello = Hello(
                cluster_id="benchmark",
                node_id=name,
                kind="shard",
                grpc=f"{name}:7000",
                raft_host=name,
                raft_port=7001,
                takes_deltas=self._has_deltas,
            )
            self._connections.append(await self._manager.join(hello))
        await settle()
        term = self._manager.leader_term
        assert term is not None
        assert term.committed.shard_map is not None
        connections = {connection.node_id: connection for connection in self._connections}
        for placement in term.committed.shard_map.placements:
            leader = placement.replicas[0]
            report = LeaderReport(
                shard_id=placement.shard_id, term=1, node_id=leader, grpc=f"{leader}:7000"
            )
            self._manager.receive(connections[leader], NodeMessage(leader=report))
            await self._carry()
        await settle()
        await self._carry()

    async def change(self, shard_id: int) -> None:
        """Add a replica to a shard, and count what that costs."""
        last_index = self._log.status.last_index
        view = self._views[0]
        node = next(name for name in self._names if name not in view.placements[shard_id].replicas)
        request = ChangeReplicasRequest(shard_id=shard_id, node_id=node, change=ADD)
        began = time.process_time()
        await self._manager.change_replicas(request)
        await settle()
        sent = await self._sent()
        self.costs.manager_s += time.process_time() - began
        began = time.process_time()
        for known, updates in zip(self._views, sent, strict=True):
            for data in updates:
                known.apply(ClusterUpdate.FromString(data))
        self.costs.nodes_s += time.process_time() - began
        self.costs.changes += 1
        self.costs.sent_bytes += sum(len(data) for updates in sent for data in updates)
        for entry in self._log.read(1, events_max=10**6, bytes_max=10**12):
            if entry.index > last_index:
                self.costs.log_bytes += sum(len(record.payload) for record in entry.records)

    def shard_maps(self) -> list[Any]:
        """Return the map as every node knows it."""
        return [view.shard_map for view in self._views]

    async def _carry(self) -> None:
        for known, updates in zip(self._views, await self._sent(), strict=True):
            for data in updates:
                known.apply(ClusterUpdate.FromString(data))

    async def _sent(self) -> list[list[bytes]]:
        """Return what every node is sent, each serialised as gRPC does: for each node anew."""
        sent = []
        for connection in self._connections:
            updates = []
            # The echo comes behind everything that was pushed before.
            self._manager.receive(connection, NodeMessage(heartbeat=NodeHeartbeat(sequence=1)))
            while True:
                update = await connection.next_update()
                assert update is not None, f"{connection} was disconnected"
                if update.heartbeat_sequence:
                    break
                updates.append(update.SerializeToString())
            sent.append(updates)
        return sent

    async def stop(self) -> None:
        """End the manager."""
        self._manager.stop()
        await self._log.stop()


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def measure(nodes: int, shards: int, changes: int) -> dict[str, Any]:
    """Return the costs of a change, both ways, of the same changes in turns."""
    with tempfile.TemporaryDirectory() as folder:
        ways = {
            name: Cluster(Path(folder) / name, nodes, shards, has_deltas=name == "difference")
            for name in ("whole", "difference")
        }
        for cluster in ways.values():
            await cluster.start()
        for number in range(changes):
            for cluster in ways.values():
                await cluster.change(1 + number * shards // changes)
        maps = [known for cluster in ways.values() for known in cluster.shard_maps()]
        assert all(known == maps[0] for known in maps), "nodes know different maps"
        for cluster in ways.values():
            await cluster.stop()
        return {name: cluster.costs.per_change(nodes) for name, cluster in ways.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--shards", type=int, default=1_000)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    costs = asyncio.run(measure(given.nodes, given.shards, given.changes))
    result = {
        "benchmark": "map_changes",
        "nodes": given.nodes,
        "shards": given.shards,
        "replication_factor": REPLICATION_FACTOR,
        "changes": given.changes,
        "load": os.getloadavg()[0],
        **costs,
    }
    print(json.dumps(result))
    whole, difference = costs["whole"], costs["difference"]
    if given.check and any(
        difference[name] > BYTES_RATIO_MAX * whole[name]
        for name in ("log_bytes", "sent_bytes_all_nodes")
    ):
        sys.exit("a difference costs more than a twentieth of the whole map's bytes")


if __name__ == "__main__":
    main()
