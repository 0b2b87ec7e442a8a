"""The common parts of all measurements: a cluster, a namespace, counters, a progress bar."""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from nextgen.cli.calls.cluster_status import gather_status
from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
from nextgen.cli.console.options import endpoints_of
from nextgen.cli.console.output import plain_console, print_line
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize, make_plan_on_free_ports
from nextgen.harness.load.jobs.create import create_topics
from nextgen.harness.load.process import LoadProcess, OnMessage, run_job
from nextgen.harness.load.topic_range import TopicRange
from nextgen.kernel.limits.cluster import TOPICS_PER_CREATE_MAX
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.discovery_service_pb2 import (
    CreateNamespaceRequest,
    CreateTenantRequest,
    GetCountersRequest,
)

COUNTER_TOLERANCE = 0.01
"""Largest relative difference between the generator's and the servers' counts."""

SETUP_TIMEOUT_MS = 300_000
"""Time-out for creating or assigning all topics of a measurement, on a slow machine."""


STOP_MOVING_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Bench:
    """The environment of a measurement. ``cluster`` is set if it was started for it."""

    targets: tuple[str, ...]
    namespace: str
    cluster: LocalCluster | None
    pulsar: str
    """host:port of the first target's Pulsar port; empty if it is not known."""

    def topics(self, stem: str, count: int, first: int = 0) -> TopicRange:
        return TopicRange(self.namespace, stem, first, count)

    def memory_mb(self, node_id: str) -> float | None:
        """Return the resident memory of a process of our own cluster, None for another
        cluster's."""
        process_id = self.cluster.process_id(node_id) if self.cluster else None
        if process_id is None:
            return None
        return round(psutil.Process(process_id).memory_info().rss / 2**20, 1)

    def cpu_seconds(self, node_id: str) -> float | None:
        """Return the CPU time of a process of our own cluster and of its children so far."""
        process_id = self.cluster.process_id(node_id) if self.cluster else None
        if process_id is None:
            return None
        process = psutil.Process(process_id)
        times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
        return sum(one.user + one.system for one in times)

    def cluster_cpu_seconds(self) -> float:
        """Return the CPU time of all processes of our own cluster so far; 0 of another's."""
        nodes = self.cluster.plan.nodes if self.cluster else ()
        return sum(self.cpu_seconds(node.node_id) or 0.0 for node in nodes)

    async def counters(self, targets: tuple[str, ...] | None = None) -> dict[str, int]:
        """Return the counters of these discovery nodes (default: all), added up."""
        total: dict[str, int] = {}
        async with DiscoveryClient(self.targets) as client:
            for target in targets or self.targets:
                response = await client.call_at(target, "GetCounters", GetCountersRequest())
                for name, value in response.counters.items():
                    total[name] = total.get(name, 0) + value
        return total

    async def committed_events(self) -> int:
        """Return the number of events in the shards' logs, by the shards' status."""
        status = await gather_status(self.targets)
        return sum(int(shard["commit_position"]) for shard in status["shards"])

    async def create(self, topics: Sequence[str]) -> None:
        """Create topics from this process.

        Raises:
            CheckFailed: One was refused.
        """
        async with DiscoveryClient(self.targets, timeout_ms=SETUP_TIMEOUT_MS) as client:
            for start in range(0, len(topics), TOPICS_PER_CREATE_MAX):
                refused = await create_topics(client, topics[start : start + TOPICS_PER_CREATE_MAX])
                if refused:
                    raise CheckFailed(f"a topic was refused: {refused[0]}")

    async def create_range(
        self, topics: TopicRange, *, in_flight: int, timeout_ms: int = SETUP_TIMEOUT_MS
    ) -> float:
        """Create topics from a process of its own; return the seconds that it took.

        Raises:
            CheckFailed: One was refused.
        """
        created = await self.run(
            "create_batched",
            "creating topics",
            topics.count,
            timeout_ms=timeout_ms,
            topics=topics.as_json(),
            batch=TOPICS_PER_CREATE_MAX,
            in_flight=in_flight,
        )
        if created["errors"]:
            raise CheckFailed(f"{created['errors']} creates were refused: {created['first_error']}")
        seconds: float = created["seconds"]
        return seconds

    async def run(
        self, kind: str, title: str, total: int, *, timeout_ms: int = SETUP_TIMEOUT_MS, **job: Any
    ) -> dict[str, Any]:
        """Run one job in a process of its own, with a progress bar, and return its result.

        Raises:
            MetadataError: The job failed or took too long.
        """
        with progress_bar(title, total) as on_message:
            described = {"kind": kind, "targets": list(self.targets), **job}
            return await run_job(described, on_message, timeout_ms=timeout_ms)


@asynccontextmanager
async def bench(
    target: str | None, size: ClusterSize, *, pulsar: str = "", keep: bool = False
) -> AsyncIterator[Bench]:
    """Give a measurement the cluster that ``target`` names, or one of its own.

    ``pulsar`` is the Pulsar port of ``target``, for measurements that need it.

    A started cluster has a temporary directory, which is removed afterwards.
    """
    run_id = secrets.token_hex(3)
    if target:
        endpoints = endpoints_of(target, None)
        yield Bench(endpoints, await make_namespace(endpoints, run_id), None, pulsar)
        return
    data_dir = Path(tempfile.mkdtemp(prefix="nextgen-perf-"))
    try:
        note(f"starting a cluster in {data_dir}")
        async with LocalCluster(make_plan_on_free_ports(size), data_dir) as cluster:
            await cluster.wait_ready()
            endpoints = cluster.plan.discovery_endpoints
            first = cluster.plan.of_kind("discovery")[0].pulsar
            yield Bench(endpoints, await make_namespace(endpoints, run_id), cluster, first)
    finally:
        if not keep:
            shutil.rmtree(data_dir, ignore_errors=True)


@asynccontextmanager
async def started_mover(
    bench: Bench, topics: TopicRange, moving_percent: float
) -> AsyncIterator[dict[str, Any]]:
    """Move a share of the topics every second while the block runs.

    Yields a dictionary that has the moves' figures once the block has ended. Without moves it
    stays empty.
    """
    summary: dict[str, Any] = {}
    if moving_percent <= 0:
        yield summary
        return
    job = {
        "kind": "move",
        # Moves go through the discovery nodes that are not measured, if there are any.
        "targets": list(reversed(bench.targets)),
        "topics": topics.as_json(),
        "per_second": max(1, round(topics.count * moving_percent / 100)),
    }
    mover = await LoadProcess.start(job)
    try:
        yield summary
        await mover.request_stop()
        async with timeout(STOP_MOVING_TIMEOUT_MS / 1000):
            summary.update(await mover.result())
    finally:
        await mover.stop()


async def make_namespace(endpoints: tuple[str, ...], run_id: str) -> str:
    """Create a tenant that is named after ``run_id``, with a namespace; return its name."""
    tenant = f"perf-{run_id}"
    async with DiscoveryClient(endpoints, timeout_ms=30_000) as client:
        await client.call(
            "CreateTenant", CreateTenantRequest(command_id=new_command_id(), name=tenant)
        )
        name = f"{tenant}/load"
        await client.call(
            "CreateNamespace", CreateNamespaceRequest(command_id=new_command_id(), name=name)
        )
    return name


def check_count(what: str, generated: int, counted: int) -> None:
    """Compare the generator's count with the servers' own.

    Raises:
        CheckFailed: They differ by more than COUNTER_TOLERANCE.
    """
    if abs(generated - counted) > COUNTER_TOLERANCE * max(generated, counted, 1):
        raise CheckFailed(
            f"the generator counted {generated} {what}, the servers counted {counted}"
        )


def grown(before: Mapping[str, int], after: Mapping[str, int], name: str) -> int:
    """Return by how much a counter grew.

    Raises:
        CheckFailed: The servers do not have that counter.
    """
    if name not in after:
        raise CheckFailed(f"the servers have no counter {name!r}, they have {sorted(after)}")
    return after[name] - before.get(name, 0)


def note(text: str) -> None:
    """Print the progress for a person at a terminal."""
    if sys.stderr.isatty():
        print_line(text, style="dim", stderr=True)


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[OnMessage]:
    """Show a bar on stderr while the block runs; yields the function that advances it."""
    columns = (
        TextColumn("{task.description:<28}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    is_terminal = sys.stderr.isatty()
    with Progress(
        *columns, console=plain_console(stderr=True), disable=not is_terminal
    ) as progress:
        task = progress.add_task(title, total=total)

        def on_message(message: dict[str, Any]) -> None:
            if "progress" in message:
                progress.update(task, completed=message["progress"])

        yield on_message
        progress.update(task, completed=total)
