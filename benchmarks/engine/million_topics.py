"""What does a shard of a million topics cost, and what does it cost to keep it running?

    python -m benchmarks.engine.million_topics [--topics 1000000] [--directory DIR]

A real cluster (one shard, three replicas in three processes), topics created through the client
library by a process of its own. Then, with single creates going on and timed all the while:
the log is cut, the leader is killed, a follower loses its disk and gets a snapshot. Prints
its steps and one JSON line last.

- ``create_per_s``: per step of ``--step`` topics; ``rss_mb``, ``pss_mb``: per shard node
- ``view_bytes_per_topic``, ``snapshot_bytes_per_topic``: on one replica, the largest of three; the
  log and the view's write-ahead file are told apart
- ``leader_change_ms``: from SIGKILL of the leader to the next create that is acknowledged
- ``restart_ms``: from the start of the killed process until it is ready and its view is complete
- ``catch_up_ms``: the same for a node whose data directory was removed, by snapshot transfer
- ``commit_stall_ms_max``: the slowest create while the log was cut, or a snapshot sent
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.support.node_metrics import metrics_of
from benchmarks.support.topic_load import NAMESPACE, UPDATED_TOPICS
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterPlan, ClusterSize, NodePlan, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.kernel.errors import MetadataError
from nextgen.tasks.timeouts import timeout

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=1, shards=1)
SMALL = 10_000
"""Topics at the first point of the curve."""

SETTLE_S = 3.0
POLL_S = 0.2
DEADLINE_S = 300.0
PROBE_PAUSE_S = 0.005

_COMPACTIONS = "replication_compactions_total"
_INSTALLED = "replication_snapshots_installed_total"


class SmallLogPlan(ClusterPlan):
    """A plan whose shard nodes cut their logs after ``log_bytes``."""

    log_bytes = 64 * 1024 * 1024

    def arguments(self, node: NodePlan, data_dir: Path) -> list[str]:
        given = super().arguments(node, data_dir)
        if node.kind == "shard-node":
            given += ["--snapshot-journal-bytes", str(self.log_bytes)]
        return given


@dataclass(slots=True)
class Probe:
    """Single creates, one after the other, each timed."""

    target: str
    latencies: list[tuple[float, float]] = field(default_factory=list)  # When it ended, ms.
    failures: int = 0
    stopping: bool = False
    number: int = 0

    async def run(self) -> None:
        async with Client([self.target], timeout_ms=30_000) as client:
            while not self.stopping:
                self.number += 1
                name = f"persistent://{NAMESPACE}/probe-{os.getpid()}-{id(self)}-{self.number}"
                began = time.perf_counter()
                try:
                    await client.create_topics([name])
                except MetadataError as error:
                    self.failures += 1
                    print(f"a create failed: {error}", file=sys.stderr)
                ended = time.perf_counter()
                self.latencies.append((ended, (ended - began) * 1000))
                await asyncio.sleep(PROBE_PAUSE_S)

    def slowest_ms(self, since: float, until: float = float("inf")) -> float:
        """Return the slowest that was under way between the two times."""
        found = [
            ms for ended, ms in self.latencies if ended >= since and ended - ms / 1000 <= until
        ]
        return round(max(found, default=0.0), 1)

    def percentiles_ms(self, since: float) -> tuple[float, float]:
        found = sorted(ms for ended, ms in self.latencies if ended >= since)
        return round(statistics.median(found), 2), round(found[int(len(found) * 0.99)], 2)

    async def wait_create(self, since: float) -> float:
        """Return when the first create ended that began after ``since``."""
        while True:
            behind = [ended for ended, ms in self.latencies[-10:] if ended - ms / 1000 >= since]
            if behind:
                return behind[0]
            await asyncio.sleep(PROBE_PAUSE_S)


@asynccontextmanager
async def probing(target: str) -> AsyncIterator[Probe]:
    probe = Probe(target)
    task = asyncio.create_task(probe.run())
    try:
        yield probe
    finally:
        probe.stopping = True
        await task


@asynccontextmanager
async def updating(target: str, rate: float) -> AsyncIterator[None]:
    """Change properties from a process of its own meanwhile."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.support.topic_load", "update"),
        *("--target", target, "--rate", str(rate)),
        stdin=asyncio.subprocess.PIPE,
    )
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


class Measurement:
    """One cluster and what was found out about it."""

    def __init__(self, cluster: LocalCluster, options: argparse.Namespace) -> None:
        self.cluster = cluster
        self.options = options
        self.target = cluster.plan.discovery_endpoints[0]
        self.nodes = [node.node_id for node in cluster.plan.of_kind("shard-node")]
        self.result: dict[str, object] = {"benchmark": "million_topics"}

    def note(self, **values: object) -> None:
        self.result |= values
        print(json.dumps(values), flush=True)

    async def numbers(self, node_id: str) -> dict[str, float]:
        return await metrics_of(self.cluster.plan.node(node_id).http, "nextgen_")

    async def leader(self) -> str:
        async with timeout(DEADLINE_S):
            while True:
                for node_id in self.nodes:
                    if (await self.numbers(node_id)).get("shard_leads") == 1:
                        return node_id
                await asyncio.sleep(POLL_S)

    async def create(self, first: int, count: int) -> float:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.support.topic_load", "create"),
            *("--target", self.target, "--first", str(first), "--count", str(count)),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, "the generator failed"
        return float(json.loads(out.splitlines()[-1])["creates_per_s"])

    async def complete(self, node_id: str) -> None:
        """Return when the node is ready and its view has what is committed."""
        await self.cluster.wait_ready([node_id], timeout_ms=int(DEADLINE_S * 1000))
        leader = await self.leader()
        goal = (await self.numbers(leader))["replication_commit_position"]
        async with timeout(DEADLINE_S):
            while True:
                if (await self.numbers(node_id)).get("replication_applied_position", 0) >= goal:
                    return
                await asyncio.sleep(POLL_S / 4)

    # What is measured -------------------------------------------------------------------------

    async def change_leaders(self, at_topics: int) -> None:
        """Kill the leader and start it again, a few times."""
        changes, restarts = [], []
        async with probing(self.target) as probe:
            for _ in range(self.options.kills):
                leader = await self.leader()
                await asyncio.sleep(SETTLE_S)
                killed_at = time.perf_counter()
                await self.cluster.kill(leader)
                changes.append((await probe.wait_create(killed_at) - killed_at) * 1000)
                began = time.perf_counter()
                await self.cluster.start_node(leader)
                await self.complete(leader)
                restarts.append((time.perf_counter() - began) * 1000)
        self.note(
            **{
                f"leader_change_ms_at_{at_topics}": [round(ms) for ms in changes],
                f"restart_ms_at_{at_topics}": [round(ms) for ms in restarts],
                f"failed_creates_at_{at_topics}": probe.failures,
            }
        )

    def measure_memory(self) -> None:
        processes = [psutil.Process(self.cluster.process_id(node)) for node in self.nodes]
        self.note(
            rss_mb=[round(process.memory_info().rss / 1e6) for process in processes],
            pss_mb=[round(process.memory_full_info().pss / 1e6) for process in processes],
        )

    def measure_disk(self, topics: int) -> None:
        found: dict[str, list[int]] = {"view": [], "view_wal": [], "snapshot": [], "journal": []}
        for node in self.nodes:
            group = self.cluster.data_dir / node / "group-1"
            found["view"].append(_bytes(group / "view", ".sqlite"))
            found["view_wal"].append(_bytes(group / "view", "-wal"))
            found["snapshot"].append(_bytes(group / "snapshots", ".db"))
            found["journal"].append(_bytes(group / "journal", ".journal"))
        self.note(
            view_bytes_per_topic=round(max(found["view"]) / topics, 1),
            snapshot_bytes_per_topic=round(max(found["snapshot"]) / topics, 1),
            view_wal_mb=[round(size / 1e6, 1) for size in found["view_wal"]],
            journal_mb=[round(size / 1e6, 1) for size in found["journal"]],
        )

    async def compact_under_load(self) -> None:
        """Let the log grow until every replica has cut it again."""
        before = {node: (await self.numbers(node))[_COMPACTIONS] for node in self.nodes}
        async with probing(self.target) as probe, updating(self.target, self.options.rate):
            began = time.perf_counter()
            ends: dict[str, float] = {}
            async with timeout(DEADLINE_S):
                while len(ends) < len(self.nodes):
                    for node in self.nodes:
                        numbers = await self.numbers(node)
                        if node not in ends and numbers[_COMPACTIONS] > before[node]:
                            ends[node] = time.perf_counter()
                    await asyncio.sleep(POLL_S)
            await asyncio.sleep(1)  # What is cut behind it is part of it.
            median, p99 = probe.percentiles_ms(began)
            stalls = [probe.slowest_ms(end - POLL_S - 0.5, end + 1) for end in ends.values()]
        self.note(
            commit_stall_ms_max=max(stalls),
            create_ms_p50_during=median,
            create_ms_p99_during=p99,
            failed_creates_during=probe.failures,
        )

    async def catch_up(self) -> None:
        """Take a follower's disk away and let it come back, while writes go on."""
        leader = await self.leader()
        emptied = next(node for node in self.nodes if node != leader)
        async with probing(self.target) as probe, updating(self.target, self.options.rate / 4):
            await self.cluster.kill(emptied)
            shutil.rmtree(self.cluster.data_dir / emptied)
            await asyncio.sleep(SETTLE_S)
            began = time.perf_counter()
            await self.cluster.start_node(emptied)
            await self.complete(emptied)
            elapsed_ms = (time.perf_counter() - began) * 1000
            stall_ms = probe.slowest_ms(began)
        installed = (await self.numbers(emptied))[_INSTALLED]
        self.note(
            catch_up_ms=round(elapsed_ms),
            catch_up_snapshots_installed=int(installed),
            commit_stall_ms_max_catching_up=stall_ms,
            failed_creates_catching_up=probe.failures,
        )

    async def run(self) -> dict[str, object]:
        topics = self.options.topics
        async with Client([self.target], timeout_ms=30_000) as client:
            await client.create_tenant(NAMESPACE.partition("/")[0])
            await client.create_namespace(NAMESPACE)
        small = min(SMALL, topics)
        await self.create(0, small)
        await self.change_leaders(small)
        rates = []
        for first in range(small, topics, self.options.step):
            rates.append(round(await self.create(first, min(self.options.step, topics - first))))
            print(json.dumps({"topics": first + self.options.step, "per_s": rates[-1]}), flush=True)
        self.note(topics=topics, create_per_s=rates)
        await asyncio.sleep(SETTLE_S)
        self.measure_memory()
        await self.compact_under_load()
        self.measure_disk(topics)
        await self.catch_up()
        await self.change_leaders(topics)
        self.measure_memory()
        return self.result


def _bytes(directory: Path, suffix: str) -> int:
    return sum(path.stat().st_size for path in directory.iterdir() if path.name.endswith(suffix))


async def measure(options: argparse.Namespace) -> dict[str, object]:
    plan = make_plan_on_free_ports(SIZE, cluster_id="million")
    small_log = SmallLogPlan(plan.cluster_id, plan.size, plan.nodes)
    directory = Path(tempfile.mkdtemp(prefix="million-topics-", dir=options.directory))
    try:
        async with LocalCluster(small_log, directory) as cluster:
            await cluster.wait_ready()
            measurement = Measurement(cluster, options)
            try:
                return await measurement.run()
            except BaseException:
                for log in sorted((directory / "logs").iterdir()):
                    print(f"{log.name}: {log.read_text()[-2_000:]}", file=sys.stderr)
                raise
    finally:
        shutil.rmtree(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--step", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--rate", type=float, default=300.0, help="updates a second")
    parser.add_argument("--directory", type=Path, default=None, help="where the disk is")
    options = parser.parse_args()
    assert options.topics >= UPDATED_TOPICS
    print(json.dumps(asyncio.run(measure(options))))


if __name__ == "__main__":
    main()
