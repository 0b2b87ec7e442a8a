"""How a cluster without data behaves as it grows: messages at rest, and how soon it is whole again.

The real processes of the cluster manager and of all shard nodes, on virtual time and a simulated
network: links, elections, heartbeats, journals and views are the project's own code. There are no
brokers, no discovery nodes and no topics. Messages take 0.05 to 2 ms, a write to disk 0.4 ms; code
takes no time, so times of convergence are lower bounds for nodes that are not short of processors.

    join      empty nodes start within one second, until every node knows the leader of every shard
    spread    from then on, until the numbers of led shards per node differ by at most one
    rest      ten seconds in which nothing happens
    loss      a shard node's machine loses power, until every other node knows new leaders
    failover  the cluster manager's leader dies, until every node is connected to the next one
    restart   all machines lose power and start within one second, until as for join

Each size runs in a process of its own. Prints a row per size, and one JSON line last.

    python -m benchmarks.cluster.cluster_scale [--sizes 10x100,30x300,100x1000]

100x1000 takes more than six minutes of processor time for each start of all nodes, and 7 GB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog

from nextgen.client.cluster.link import ClusterLink
from nextgen.replication.config import RaftConfig
from nextgen.replication.ports import CLUSTER_MANAGER_GROUP_ID, Role
from shards import bootstrap
from tests.support.cluster_simulation import raft_environment
from tests.support.cluster_simulation.components import ClusterPlan, kind_of, limits_of
from tests.support.cluster_simulation.outside_world import collect_garbage, simulated_world
from tests.support.cluster_simulation.simulation import ClusterSimulation, Node
from tests.support.cluster_simulation.virtual_loop import SimulatedLoop
from tests.support.simulated import virtual_time
from tests.support.simulated.process import PROCESS

SIZES = "10x100,30x300"
SEED = 1
STORM_S = 1.0
SETTLED_S = 10.0
"""Between phases, so that nothing of one is counted in the next."""
REST_S = 10
LOOK_S = 0.05
"""Virtual seconds between two looks at whether the cluster is whole: the resolution of times."""
PHASE_S_MAX = 240.0
ROOMY = RaftConfig(journal_segment_bytes=128 * 1024)
"""The simulation's own journals are small, and a map of 1,000 shards fits into no segment."""


class Traffic:
    """Delivered messages and bytes, counted by the kinds of sender, receiver and message."""

    def __init__(self) -> None:
        self.messages: Counter[str] = Counter()
        self.bytes = 0
        self.pairs: set[str] = set()

    def note(self, _now_s: float, what: str, data: bytes) -> None:
        """Count one message; a listener of the simulation's trace."""
        pair, _, kind = what.partition(" ")
        sender, arrow, target = pair.partition(">")
        if not arrow:
            return
        self.messages[f"{kind_of(sender)}>{kind_of(target)} {_named(kind)}"] += 1
        self.bytes += len(data)
        self.pairs.add(pair)

    def shown(self) -> dict[str, Any]:
        """Return the counts, the most frequent kinds first."""
        return {
            "messages": sum(self.messages.values()),
            "mb": round(self.bytes / 1e6, 2),
            "by_kind": dict(self.messages.most_common(5)),
        }


def _named(kind: str) -> str:
    return kind.rpartition("/")[2].split(" ")[0]


class Scale:
    """One cluster of one size."""

    def __init__(self, nodes: int, shards: int, root: Path) -> None:
        self._nodes, self._shards = nodes, shards
        self._loop = SimulatedLoop(collect_garbage)
        self._root = root
        self._links: dict[str, ClusterLink] = {}
        self._measured: dict[str, Any] = {"nodes": nodes, "shards": shards}
        self._chance = random.Random(SEED)
        self._plan = ClusterPlan(shard_nodes=nodes, shards=shards, discovery_nodes=0, brokers=0)
        self._simulation = ClusterSimulation(self._loop, root, SEED, self._plan)

    def run(self) -> None:
        """Print what was measured as one JSON line, and end the process.

        The tasks of processes that were killed never end, so nothing here is left by returning.
        """
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        links = self._links

        class SeenLink(ClusterLink):
            """A link that can be found by its process."""

            def __init__(self, *given: Any, **named: Any) -> None:
                super().__init__(*given, **named)
                links[PROCESS.get().name] = self

        simulation = self._simulation
        with (
            simulated_world(self._loop, simulation.network, SEED),
            limits_of(self._plan),
            patch.object(bootstrap, "ClusterLink", SeenLink),
            patch.object(raft_environment, "RAFT_CONFIG", ROOMY),
            patch.object(virtual_time, "ROUNDS_MAX", sys.maxsize),
        ):
            await self._phases()
        measured = self._measured
        measured["violations"] = simulation.violations
        measured["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps(measured), flush=True)
        shutil.rmtree(self._root, ignore_errors=True)
        os._exit(0)

    async def _phases(self) -> None:
        await self._phase("join", self._start_all, self._is_whole)
        await self._phase("spread", _nothing, self._is_spread)
        await asyncio.sleep(SETTLED_S)
        await self._rest()
        lost = self._shard_nodes()[0]
        await self._phase("loss", lambda: self._crash(lost), self._is_whole)
        await asyncio.sleep(SETTLED_S)
        leader = self._simulation.invariants.leader_of(CLUSTER_MANAGER_GROUP_ID)
        assert leader is not None, "the cluster manager has no leader"
        manager = self._simulation.nodes[leader]
        await self._phase(
            "failover", lambda: self._crash(manager), lambda: self._are_connected(leader)
        )
        await asyncio.sleep(SETTLED_S)
        await self._phase("restart", self._restart_all, self._is_whole)
        await self._phase("restart_spread", _nothing, self._is_spread)

    def _found(self, phase: str, measured: dict[str, Any]) -> None:
        """Keep what a phase measured, and say it: the largest size takes long."""
        self._measured[phase] = measured
        print(json.dumps({phase: measured}), file=sys.stderr, flush=True)

    async def _phase(
        self, name: str, begin: Callable[[], Any], is_over: Callable[[], bool]
    ) -> None:
        """Measure how long it takes from ``begin`` until ``is_over``, and what is sent."""
        traffic, cpu_s, began_s = Traffic(), time.process_time(), self._loop.now_s
        self._simulation.network.trace.listener = traffic.note
        begin()
        while not is_over():
            if self._loop.now_s - began_s > PHASE_S_MAX:
                self._found(name, {"seconds": None, **traffic.shown()})
                return
            await asyncio.sleep(LOOK_S)
        seconds = round(self._loop.now_s - began_s, 2)
        cpu_s = round(time.process_time() - cpu_s, 1)
        self._found(name, {"seconds": seconds, **traffic.shown(), "cpu_s": cpu_s})

    async def _rest(self) -> None:
        traffic, cpu_s = Traffic(), time.process_time()
        self._simulation.network.trace.listener = traffic.note
        await asyncio.sleep(REST_S)
        sent = sum(traffic.messages.values())
        measured = {
            "messages_per_s": round(sent / REST_S),
            "messages_per_s_and_node": round(sent / REST_S / self._nodes, 1),
            "kb_per_s": round(traffic.bytes / REST_S / 1e3, 1),
            "node_pairs_in_use": len(traffic.pairs),
            "by_kind_per_s": {
                kind: round(count / REST_S) for kind, count in traffic.messages.most_common(4)
            },
            "cpu_s": round(time.process_time() - cpu_s, 1),
        }
        self._found("rest", measured)

    # What happens -----------------------------------------------------------------------------

    def _shard_nodes(self) -> list[Node]:
        return [self._simulation.nodes[name] for name in self._plan.shard_node_names]

    def _start_all(self) -> None:
        """Start the cluster manager, and every shard node at a time of its own."""
        for name in self._plan.manager_names:
            node = self._simulation.nodes[name]
            if not node.is_up:
                node.start()
        for node in self._shard_nodes():
            self._loop.call_later(self._chance.uniform(0, STORM_S), node.start)

    def _crash(self, node: Node) -> None:
        self._links.pop(node.name, None)
        node.crash(power_cut=True)

    def _restart_all(self) -> None:
        for node in self._simulation.nodes.values():
            if node.is_up:
                self._crash(node)
        self._start_all()

    # What is waited for -----------------------------------------------------------------------

    def _led(self) -> Counter[str]:
        """Return the number of shards that each running node leads."""
        roles = self._simulation.invariants.roles
        nodes = self._simulation.nodes
        return Counter(
            name
            for (name, group_id), role in roles.items()
            if role is Role.LEADER and group_id and nodes[name].is_up
        )

    def _is_whole(self) -> bool:
        """Return whether every running node knows a running leader of every shard."""
        nodes = self._simulation.nodes
        running = [node.name for node in self._shard_nodes() if node.is_up]
        if len(self._links) < len(running) or sum(self._led().values()) < self._shards:
            return False
        return bool(running) and all(
            len(self._links[name].view.leaders) == self._shards
            and all(nodes[led.node_id].is_up for led in self._links[name].view.leaders.values())
            for name in running
        )

    def _is_spread(self) -> bool:
        led = self._led()
        counts = [led[node.name] for node in self._shard_nodes() if node.is_up]
        return max(counts) - min(counts) <= 1

    def _are_connected(self, former: str) -> bool:
        return all(
            link.leader_endpoint is not None and not link.leader_endpoint.startswith(f"{former}:")
            for link in self._links.values()
        )


def _nothing() -> None:
    """Only wait."""


def measure(size: str) -> None:
    """Print what a cluster of ``size`` does, and end this process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    nodes, shards = map(int, size.split("x"))
    base = "/dev/shm" if Path("/dev/shm").is_dir() else None
    root = Path(tempfile.mkdtemp(prefix="cluster-scale-", dir=base))
    try:
        Scale(nodes, shards, root).run()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default=SIZES, help="nodes x shards, comma separated")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        measure(given.one)
    rows = []
    for size in given.sizes.split(","):
        command = [sys.executable, "-m", "benchmarks.cluster.cluster_scale", "--one", size]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        print(json.dumps(row), flush=True)
        rows.append(row)
    print(json.dumps({"benchmark": "cluster_scale", "load": os.getloadavg()[0], "sizes": rows}))


if __name__ == "__main__":
    main()
