"""One scale run: a cluster of its own in a directory, loaded, then measured phase by phase."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.node_metrics import metrics_of
from benchmarks.support.scale.footprint import disk_bytes, memory_mib, per_topic
from benchmarks.support.scale.names import LARGE_EVERY, LARGE_NAMESPACE, name_of
from benchmarks.support.scale.state import RunState
from benchmarks.support.shard_nodes import ShardNodes
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import (
    ClusterPlan,
    ClusterSize,
    NodePlan,
    load_plan,
    make_plan_on_free_ports,
)
from nextgen.client import Client
from nextgen.harness.load.measure import Latencies
from nextgen.harness.perf.bench import Bench, make_namespace
from nextgen.harness.perf.failover import Counts, measure_failover
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX
from nextgen.tasks.timeouts import timeout

READY_MS = 900_000
COMPLETE_S = 3_600.0
"""Bounds of starts and of catching up: generous, since what takes long is to be measured."""

POLL_S = 0.25
DRAWN = 2_000
"""Topics drawn by chance that must be there."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What one run is to do; a directory belongs to one such answer."""

    topics: int
    shards: int
    nodes: int
    replicas: int
    chunk: int
    lookups: int
    creates: int
    kills: int
    export: bool

    @property
    def chunks(self) -> int:
        return -(-self.topics // self.chunk)


@dataclass(frozen=True)
class ScalePlan(ClusterPlan):
    """A plan whose number of replicas does not follow from the number of nodes."""

    replicas: int = 1

    def arguments(self, node: NodePlan, data_dir: Path) -> list[str]:
        given = super().arguments(node, data_dir)
        if node.kind == "cluster-manager":
            given[given.index("--replication-factor") + 1] = str(self.replicas)
        return given


def note(**values: object) -> None:
    """Say how far the run is; the result goes to the standard output."""
    print(json.dumps(values), file=sys.stderr, flush=True)


class ScaleRun:
    """See the module. Whatever is recorded in the directory's state is not done again."""

    def __init__(self, directory: Path, asked: Asked, settle_s: float) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._asked = asked
        self._settle_s = settle_s
        self._exporter: asyncio.subprocess.Process | None = None
        self.state = RunState(directory, {key: getattr(asked, key) for key in Asked.__slots__})

    async def run(self) -> dict[str, Any]:
        """Return the phases' results by name."""
        asked = self._asked
        async with self._cluster() as cluster, self._exporting(cluster):
            await cluster.wait_ready(timeout_ms=READY_MS)
            phases = Phases(cluster, asked, self._directory)
            await self._phase("load", lambda: self._load(cluster, phases))
            await asyncio.sleep(self._settle_s)
            await self._phase("at_rest", phases.at_rest)
            await self._phase("listing", phases.listing)
            await self._phase("lookups", phases.lookups)
            await self._phase("creates", phases.creates)
            await self._phase("failover", phases.failover)
            await self._phase("restart", phases.restart)
            await self._phase("snapshot", phases.snapshot)
            await self._phase("export", lambda: self._export(phases))
            await self._phase("after", phases.after)
        return {name: found["result"] for name, found in self.state.phases.items()}

    async def _phase(self, name: str, work: Callable[[], Awaitable[Any]]) -> None:
        if self.state.result_of(name) is None:
            began = time.perf_counter()
            result = await work()
            result["phase_s"] = round(time.perf_counter() - began, 1)
            self.state.record(name, result)
        note(topics=self._asked.topics, phase=name, **self.state.result_of(name))

    @asynccontextmanager
    async def _cluster(self) -> AsyncIterator[LocalCluster]:
        data_dir = self._directory / "cluster"
        plan = load_plan(data_dir) if data_dir.exists() else None
        if plan is None:
            size = ClusterSize(
                cluster_managers=1,
                shard_nodes=self._asked.nodes,
                discovery=1,
                brokers=1,
                shards=self._asked.shards,
                capacity_units=max(50_000, 2 * self._asked.lookups),
            )
            plan = make_plan_on_free_ports(size, cluster_id="scale")
            plan.save(data_dir)
        scale = ScalePlan(plan.cluster_id, plan.size, plan.nodes, replicas=self._asked.replicas)
        async with LocalCluster(scale, data_dir) as cluster:
            try:
                yield cluster
            except BaseException:
                for log in sorted(cluster.logs_dir.iterdir()):
                    print(f"{log.name}: {log.read_text()[-1_000:]}", file=sys.stderr)
                raise

    @asynccontextmanager
    async def _exporting(self, cluster: LocalCluster) -> AsyncIterator[None]:
        """Export while the run goes on: the log keeps no history of a hundred million creates."""
        if not self._asked.export or self.state.result_of("export") is not None:
            yield
            return
        await cluster.wait_ready(timeout_ms=READY_MS)
        self._exporter = await asyncio.create_subprocess_exec(
            *_export_command(self._directory, cluster, "--follow"),
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            await self._end_exporter()

    async def _end_exporter(self) -> None:
        if self._exporter is not None and self._exporter.returncode is None:
            self._exporter.terminate()
            await self._exporter.wait()

    async def _export(self, phases: Phases) -> dict[str, Any]:
        await self._end_exporter()  # An export has one writer at a time.
        return await phases.export()

    async def _load(self, cluster: LocalCluster, phases: Phases) -> dict[str, Any]:
        asked, folder = self._asked, self._directory / "load"
        made: asyncio.subprocess.Process | None = None
        rates: list[int] = []
        cpu_before = phases.cpu_s()
        while self.state.chunks_done < asked.chunks:
            number = self.state.chunks_done
            began = time.perf_counter()
            await _ended(made or await self._make(cluster, number))
            made = await self._make(cluster, number + 1) if number + 1 < asked.chunks else None
            loaded = await phases.generator(
                "load",
                "load",
                *("--folder", str(folder / str(number)), "--cluster", str(cluster.data_dir)),
                *(("--parents",) if number == 0 else ()),
            )
            elapsed_s = time.perf_counter() - began
            assert not loaded["refused"], "a topic was refused"
            self.state.chunk_loaded(elapsed_s, phases.largest_rss_mib())
            shutil.rmtree(folder / str(number))
            rates.append(round((loaded["created"] + loaded["existing"]) / elapsed_s))
            note(chunk=number + 1, of=asked.chunks, per_s=rates[-1], load=os.getloadavg()[0])
        began = time.perf_counter()
        await phases.wait_complete()
        load_s = self.state.load_s + time.perf_counter() - began
        return {
            "load_s": round(load_s, 1),
            "per_s": round(asked.topics / load_s),
            "per_s_by_chunk": rates,
            "rss_mib_by_chunk": self.state.rss_mib,
            "server_cpu_us_per_topic": round((phases.cpu_s() - cpu_before) / asked.topics * 1e6, 1),
            "load_average": round(os.getloadavg()[0], 1),
        }

    async def _make(self, cluster: LocalCluster, number: int) -> asyncio.subprocess.Process:
        asked = self._asked
        first = number * asked.chunk
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.support.scale.load", "make"),
            *("--target", cluster.plan.discovery_endpoints[0]),
            *("--folder", str(self._directory / "load" / str(number))),
            *("--first", str(first), "--count", str(min(asked.chunk, asked.topics - first))),
        )


class Phases:
    """What is measured of a loaded cluster. Each returns what is recorded."""

    def __init__(self, cluster: LocalCluster, asked: Asked, directory: Path) -> None:
        self._cluster = cluster
        self._asked = asked
        self._directory = directory
        self._target = cluster.plan.discovery_endpoints[0]
        self._nodes = [node.node_id for node in cluster.plan.of_kind("shard-node")]

    def cpu_s(self) -> float:
        return Bench(
            self._cluster.plan.discovery_endpoints, "", self._cluster, ""
        ).cluster_cpu_seconds()

    def largest_rss_mib(self) -> float:
        """Return the resident memory of the largest shard node."""
        memory = self._memory()
        return max(memory[node_id]["rss"] for node_id in self._nodes)

    async def generator(self, module: str, what: str, *arguments: str) -> dict[str, Any]:
        """Run a generator in a process of its own and return its last line."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"benchmarks.support.scale.{module}", what),
            *("--target", self._target, *arguments),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        if process.returncode:
            raise SystemExit(f"{module} {what} failed; run it again with the same --dir")
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found

    async def wait_complete(self) -> None:
        """Return when every replica is open and its view has what its group has committed."""
        endpoints = [node.grpc for node in self._cluster.plan.of_kind("shard-node")]
        expected = self._asked.shards * self._asked.replicas
        async with timeout(COMPLETE_S), ShardNodes(endpoints) as nodes:
            while True:
                replicas = sum(len(status.replicas) for status in await nodes.statuses())
                if replicas >= expected and not await nodes.views_behind():
                    return
                await asyncio.sleep(POLL_S)

    async def at_rest(self) -> dict[str, Any]:
        """Memory and disk before anything but the load has happened, and whether all is there."""
        return {
            **self._footprint(),
            "topics_in_views": self._topics_in_views(),
            **await self._sample(),
        }

    async def listing(self) -> dict[str, Any]:
        """The large namespace by pages, each name once and in order, and counted."""
        expected = -(-self._asked.topics // LARGE_EVERY)
        latencies = Latencies()
        listed, last, is_ordered, token = 0, "", True, ""
        async with Client([self._target], timeout_ms=60_000) as client:
            began = time.perf_counter()
            counted = (await client.count_topics(LARGE_NAMESPACE)).topics
            count_s = time.perf_counter() - began
            began = time.perf_counter()
            while True:
                sent = time.perf_counter()
                page = await client.topic_names_page(
                    LARGE_NAMESPACE, page_size=PAGE_ITEMS_MAX, page_token=token
                )
                latencies.add(time.perf_counter() - sent)
                for name in page.partitions:
                    is_ordered = is_ordered and name > last
                    last = name
                listed += len(page.partitions)
                token = page.next_page_token
                if not token:
                    break
        assert (listed, counted, is_ordered) == (expected, expected, True), (
            f"{listed} listed, {counted} counted of {expected}, in order: {is_ordered}"
        )
        return {
            "names": listed,
            "list_s": round(time.perf_counter() - began, 2),
            "page_ms": latencies.summary(),
            "count_s": round(count_s, 2),
        }

    async def lookups(self) -> dict[str, Any]:
        found = await self.generator(
            "callers",
            "lookups",
            *("--topics", str(self._asked.topics), "--count", str(self._asked.lookups)),
        )
        assert not any(part["wrong"] for part in found.values()), f"wrong answers: {found}"
        return {**found, "memory_mib": self._memory()}

    async def creates(self) -> dict[str, Any]:
        found = await self.generator(
            "callers",
            "creates",
            *("--topics", str(self._asked.topics), "--count", str(self._asked.creates)),
        )
        assert not any(part["wrong"] for part in found.values()), f"refused: {found}"
        return found

    async def failover(self) -> dict[str, Any]:
        """Leaders killed, as ``nextgen perf failover`` does it."""
        if self._asked.replicas < 2:
            return {"skipped": "one replica: nobody takes over"}
        endpoints = self._cluster.plan.discovery_endpoints
        namespace = await make_namespace(endpoints, f"{time.time_ns():x}")
        bench = Bench(endpoints, namespace, self._cluster, "")
        found = await measure_failover(bench, Counts(self._asked.kills, 0, 0))
        await self.wait_complete()
        return {key: value for key, value in found.items() if key.startswith("failover_")}

    async def restart(self) -> dict[str, Any]:
        """A node killed and started again: until it is ready, and until its views are complete."""
        node_id = self._nodes[-1]
        await self._cluster.kill(node_id)
        began = time.perf_counter()
        await self._cluster.start_node(node_id)
        await self._cluster.wait_ready([node_id], timeout_ms=READY_MS)
        ready_s = time.perf_counter() - began
        await self.wait_complete()
        complete_s = time.perf_counter() - began
        return {"ready_s": round(ready_s, 2), "complete_s": round(complete_s, 2)}

    async def snapshot(self) -> dict[str, Any]:
        """One shard's replica built from a copy of the leader's view, beside ``disk`` of it."""
        if len(self._nodes) < 2:
            return {"skipped": "one node: there is none to ship a snapshot to"}
        began = time.perf_counter()
        if self._asked.replicas > 1:
            node_id = self._nodes[-1]
            await self._cluster.kill(node_id)
            shutil.rmtree(self._group(node_id, 1))
            began = time.perf_counter()
            await self._cluster.start_node(node_id)
            await self._cluster.wait_ready([node_id], timeout_ms=READY_MS)
            await self.wait_complete()
        else:
            node_id = next(one for one in self._nodes if not self._group(one, 1).exists())
            # Otherwise the cluster would take it away again by itself.
            setting = ("brokers", "settings", "set", "shardReplicasBalanceEnabled=false")
            await _ended(await self._nextgen(*setting))
            began = time.perf_counter()
            await _ended(await self._nextgen("shards", "replicas", "add", "1", node_id))
        elapsed_s = time.perf_counter() - began
        numbers = await metrics_of(self._cluster.plan.node(node_id).http, "nextgen_")
        found = {
            "elapsed_s": round(elapsed_s, 2),
            "installed": int(numbers.get("replication_snapshots_installed_total", 0)),
            "bytes": _size(self._group(node_id, 1) / "view"),
        }
        if self._asked.replicas == 1:
            await _ended(await self._nextgen("shards", "replicas", "remove", "1", node_id))
        return found

    async def export(self) -> dict[str, Any]:
        """The export brought to the end of the logs, and rebuilt by Spark."""
        if not self._asked.export:
            return {"skipped": "not asked for: --export"}
        began = time.perf_counter()
        await _ended(
            await asyncio.create_subprocess_exec(*_export_command(self._directory, self._cluster))
        )
        export_s = time.perf_counter() - began
        if importlib.util.find_spec("pyspark") is None:
            return {"export_s": round(export_s, 1), "skipped": "no Spark here"}
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pipelines", "rebuild", str(self._directory / "export")),
            *("--out", str(self._directory / "rebuilt"), "--json"),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, "the rebuild failed"
        return {
            "export_s": round(export_s, 1),
            "rebuild_s": round(time.perf_counter() - began, 1),
            "rebuilt": json.loads(out.splitlines()[-1]).get("rows"),
        }

    async def after(self) -> dict[str, Any]:
        """Memory and disk behind all of it, and whether all is still there."""
        return {**self._footprint(), **await self._sample()}

    # Inside -----------------------------------------------------------------------------------

    def _group(self, node_id: str, shard_id: int) -> Path:
        return self._cluster.data_dir / node_id / f"group-{shard_id}"

    def _memory(self) -> dict[str, dict[str, float]]:
        found = {}
        for node in self._cluster.plan.nodes:
            process_id = self._cluster.process_id(node.node_id)
            if process_id is not None:
                found[node.node_id] = process_id
        return memory_mib(found)

    def _footprint(self) -> dict[str, Any]:
        found = disk_bytes([self._cluster.data_dir / node_id for node_id in self._nodes])
        topics, replicas = self._asked.topics, self._asked.replicas
        return {
            "disk_bytes": found,
            "bytes_per_topic_and_replica": per_topic(found, topics, replicas),
            "name_bytes": len(name_of(1)),
            "memory_mib": self._memory(),
            "load_average": round(os.getloadavg()[0], 1),
        }

    def _topics_in_views(self) -> int:
        """Return what one replica of each shard counts; the others must count the same."""
        counts: dict[int, set[int]] = {}
        for node_id in self._nodes:
            for shard_id in range(1, self._asked.shards + 1):
                for view in self._group(node_id, shard_id).glob("view/view.*.sqlite"):
                    counts.setdefault(shard_id, set()).add(_total(view))
        assert all(len(found) == 1 for found in counts.values()), f"replicas differ: {counts}"
        total = sum(next(iter(found)) for found in counts.values())
        assert total == self._asked.topics, f"{total} topics of {self._asked.topics}"
        return total

    async def _sample(self) -> dict[str, Any]:
        chance = random.Random(2)
        numbers = [chance.randrange(self._asked.topics) for _ in range(DRAWN)]
        missing = 0
        async with Client([self._target], timeout_ms=60_000) as client:
            for number in numbers:
                missing += await client.get_topic(name_of(number)) is None
        assert not missing, f"{missing} of {DRAWN} topics are not there"
        return {"sampled": DRAWN, "missing": missing}

    async def _nextgen(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nextgen.main", *arguments),
            *("--data-dir", str(self._cluster.data_dir), "--json"),
            stdout=subprocess.DEVNULL,
        )


def _export_command(directory: Path, cluster: LocalCluster, *flags: str) -> list[str]:
    command = [sys.executable, "-m", "nextgen.main", "export", "run", str(directory / "export")]
    return [*command, *flags, "--data-dir", str(cluster.data_dir), "--json"]


async def _ended(process: asyncio.subprocess.Process) -> None:
    if await process.wait():
        raise SystemExit("a process of the run failed; run it again with the same --dir")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("view.*.sqlite"))


def _total(view: Path) -> int:
    with closing(sqlite3.connect(f"file:{view}?mode=ro", uri=True)) as connection:
        row = connection.execute("SELECT total FROM totals WHERE kind = 'topic'").fetchone()
    return 0 if row is None else int(row[0])
