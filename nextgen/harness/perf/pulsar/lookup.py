"""``perf pulsar-lookup``: warm lookups of Pulsar clients at one discovery process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
from nextgen.harness.load.measure import summary_of_counts
from nextgen.harness.load.process import LoadProcess
from nextgen.harness.load.pulsar.answer_check import KnownBroker
from nextgen.harness.load.pulsar.lookup_requests import FIRST_ABSENT_STEM
from nextgen.harness.load.topic_range import TopicRange
from nextgen.harness.perf.bench import (
    SETUP_TIMEOUT_MS,
    Bench,
    check_count,
    grown,
    note,
    progress_bar,
    started_mover,
)
from nextgen.harness.perf.lookup import prepare_assigned
from nextgen.kernel.errors import DeadlineExceeded, InvalidRequest
from nextgen.kernel.governance.auto_creation import ALLOW_PROPERTY
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.discovery_service_pb2 import CreateNamespaceRequest, GetClusterRequest

WARM_SECONDS = 2
CHECK_EVERY_STILL = 200
CHECK_EVERY_MOVING = 40
"""One of this many reads, of some dozens of answers each, is checked at the brokers. While topics
move more reads are checked; each check costs the brokers and the generator CPU."""

LOOKUP_COUNTER = "pulsar_lookups"
PARTITION_METADATA_COUNTER = "pulsar_partition_reads"


@dataclass(frozen=True, slots=True)
class LookupLoad:
    """The topics to look up, and the concurrency."""

    topics: int
    seconds: float
    connections: int
    in_flight: int
    workers: int
    moving_percent: float
    is_partition_metadata: bool
    absent_percent: float = 0
    """Share of the topics that do not exist."""

    are_absent_new: bool = False
    """Whether each lookup of an absent topic is the first one of its name."""

    @property
    def absent(self) -> int:
        return round(self.topics * self.absent_percent / 100)

    def check(self) -> None:
        """Check that there are enough topics to fill every window with different ones.

        Raises:
            InvalidRequest: There are not.
        """
        if self.topics < 2 * self.connections * self.in_flight:
            raise InvalidRequest(
                f"{self.topics} topics are too few for {self.connections} connections with "
                f"{self.in_flight} requests in flight: name twice as many topics as requests"
            )
        if self.connections < self.workers:
            raise InvalidRequest(
                f"{self.connections} connections cannot be shared by {self.workers} generators"
            )


@dataclass(slots=True)
class Window:
    """The CPU time from the first generator's beginning to the last one's end: that of the measured
    process, and that of all servers."""

    cpu_of: Callable[[], tuple[float | None, float]]
    generators: int
    cpu_seconds: float | None = None
    cluster_cpu_seconds: float | None = None
    _before: tuple[float | None, float] | None = None
    _begun: int = 0
    _ended: int = 0

    def heard(self, message: dict[str, Any]) -> None:
        """Handle a generator's message."""
        event = message.get("event")
        if event == "measuring":
            self._begun += 1
            if self._begun == 1:
                self._before = self.cpu_of()
        elif event == "measured":
            self._ended += 1
            if self._ended < self.generators or self._before is None:
                return
            own, all_servers = self.cpu_of()
            own_before, all_before = self._before
            if own is not None and own_before is not None:
                self.cpu_seconds = own - own_before
                self.cluster_cpu_seconds = all_servers - all_before


async def measure_pulsar_lookup(bench: Bench, load: LookupLoad) -> dict[str, Any]:
    """Return the measurement of one discovery process.

    Raises:
        CheckFailed: The counts of generators and server differ, or an answer without a request
            arrived.
    """
    load.check()
    wanted = bench.topics("topic", load.topics - load.absent)
    prepared = await prepare_assigned(bench, wanted) if wanted.count else {}
    absent = await _absent(bench, load)
    target = bench.targets[0]
    brokers = await known_brokers(bench.targets)
    before = await bench.counters((target,))
    window = Window(
        lambda: (bench.cpu_seconds("discovery-1"), bench.cluster_cpu_seconds()), load.workers
    )
    jobs = [_job(bench, load, wanted, absent, brokers, number) for number in range(load.workers)]
    async with started_mover(bench, wanted, load.moving_percent) as moves:
        results = await _run_all(jobs, window, load)
    counter = PARTITION_METADATA_COUNTER if load.is_partition_metadata else LOOKUP_COUNTER
    counted = grown(before, await bench.counters((target,)), counter)
    check_count("answers", sum(result["answers_total"] for result in results), counted)
    unexpected = sum(result["unexpected"] for result in results)
    if unexpected:
        examples = [r["first_unexpected"] for r in results if r["first_unexpected"]]
        raise CheckFailed(f"{unexpected} unexpected commands arrived: {examples[0]}")
    return {
        **_report(results, window, load),
        "answers_counted_by_server": counted,
        "discovery_rss_mb": bench.memory_mb("discovery-1"),
        "moves": moves,
        "setup": {name: round(value, 2) for name, value in prepared.items()},
    }


def _report(results: Sequence[dict[str, Any]], window: Window, load: LookupLoad) -> dict[str, Any]:
    answers = sum(result["answers"] for result in results)
    generator_cpu_s = sum(result["cpu_seconds"] for result in results)
    verdicts: dict[str, int] = {}
    for result in results:
        for name, count in result["checked"].items():
            verdicts[name] = verdicts.get(name, 0) + count
    examples = [example for result in results for example in result["wrong"]]
    return {
        "benchmark": "pulsar-lookup",
        "rate": round(sum(result["answers"] / result["seconds"] for result in results)),
        "rate_unit": "answers/s",
        **summary_of_counts([result["latency_us"] for result in results]),
        "errors": sum(result["errors"] for result in results),
        "first_error": next((r["first_error"] for r in results if r["first_error"]), ""),
        "wrong": verdicts.get("wrong", 0),
        "checked": sum(verdicts.values()),
        "verdicts": verdicts,
        **({"wrong_examples": examples} if examples else {}),
        "discovery_cpu_seconds": _rounded(window.cpu_seconds),
        "answers_per_discovery_core_second": (
            round(answers / window.cpu_seconds) if window.cpu_seconds else None
        ),
        "all_servers_cpu_seconds": _rounded(window.cluster_cpu_seconds),
        "generator_cpu_seconds": _rounded(generator_cpu_s),
        "run": {
            "command": "PARTITIONED_METADATA" if load.is_partition_metadata else "LOOKUP",
            "topics": load.topics,
            "seconds": load.seconds,
            "connections": load.connections,
            "in_flight_per_connection": load.in_flight,
            "generator_processes": load.workers,
            "discovery_processes": 1,
            "moving_percent_per_second": load.moving_percent,
            "absent_percent": load.absent_percent,
            "are_absent_new": load.are_absent_new,
        },
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


async def known_brokers(targets: tuple[str, ...]) -> list[KnownBroker]:
    """Return the live brokers as discovery knows them.

    Raises:
        CheckFailed: One of them does not serve Pulsar clients, so its answers lead nowhere.
    """
    async with DiscoveryClient(targets) as client:
        cluster = await client.call("GetCluster", GetClusterRequest())
    brokers = [
        KnownBroker(one.endpoints.pulsar_url, one.endpoints.grpc, one.session_id)
        for one in cluster.brokers
        if one.is_live
    ]
    if not brokers or not all(broker.pulsar_url for broker in brokers):
        raise CheckFailed("a live broker has no Pulsar URL")
    return brokers


async def _absent(bench: Bench, load: LookupLoad) -> TopicRange | None:
    """Return the topics that do not exist, in a namespace that creates none on demand."""
    if not load.absent:
        return None
    namespace = f"{bench.namespace}-absent"
    async with DiscoveryClient(bench.targets) as client:
        request = CreateNamespaceRequest(
            command_id=new_command_id(), name=namespace, properties={ALLOW_PROPERTY: "false"}
        )
        await client.call("CreateNamespace", request)
    return TopicRange(namespace, FIRST_ABSENT_STEM, 0, load.absent)


def _job(
    bench: Bench,
    load: LookupLoad,
    topics: TopicRange,
    absent: TopicRange | None,
    brokers: list[KnownBroker],
    number: int,
) -> dict[str, Any]:
    """Return the job of one generator: an equal share of topics and connections."""
    connections = [load.connections * n // load.workers for n in (number, number + 1)]
    every = CHECK_EVERY_MOVING if load.moving_percent else CHECK_EVERY_STILL
    return {
        "kind": "pulsar_lookup",
        "pulsar": bench.pulsar,
        "brokers": [broker.as_json() for broker in brokers],
        "topics": _share(topics, number, load.workers).as_json(),
        "absent": absent and _share(absent, number, load.workers).as_json(),
        "renames": load.are_absent_new,
        "is_partition_metadata": load.is_partition_metadata,
        "connections": connections[1] - connections[0],
        "in_flight": load.in_flight,
        "warm_seconds": min(WARM_SECONDS, load.seconds),
        "seconds": load.seconds,
        "check_every": 0 if load.is_partition_metadata else every,
    }


def _share(topics: TopicRange, number: int, workers: int) -> TopicRange:
    first, end = (topics.count * n // workers for n in (number, number + 1))
    return TopicRange(topics.namespace, topics.stem, topics.first + first, end - first)


async def _run_all(
    jobs: Sequence[dict[str, Any]], window: Window, load: LookupLoad
) -> list[dict[str, Any]]:
    processes = [await LoadProcess.start(job) for job in jobs]
    timeout_ms = SETUP_TIMEOUT_MS + int(load.seconds * 1000)
    note(f"{len(jobs)} generators, {load.connections} connections x {load.in_flight} in flight")
    try:
        with progress_bar("looking up", 0):
            async with timeout(timeout_ms / 1000):
                return await asyncio.gather(
                    *[process.result(window.heard) for process in processes]
                )
    except TimeoutError:
        raise DeadlineExceeded(f"the generators took longer than {timeout_ms} ms") from None
    finally:
        await asyncio.gather(*[process.stop() for process in processes])
