"""What does one tenant pay for another that asks for ten times its share?

Two tenants use one discovery node's public ports, each from a process of its own. Each has the same
share: so many lookups of assigned names (Pulsar), lookups of absent names, creates, and first
lookups of what was created (gRPC) a second. First the quiet tenant runs alone, then beside as many
busy loops as there are cores (what a full machine costs, whoever fills it), then beside a tenant
that asks for ``--times`` as much, and for ``--unpaced`` connections more that keep a window of
lookups full. Arrivals have fixed times, and a latency counts from when its request was due, so a
stall is seen by everything that it delays. Served is what was answered rightly within a second.
Every answer is checked: an absent name must be absent, a created one must not be. One JSON line
last; exits with 1 if an answer is wrong or, with ``--check``, if a goal is missed.

    python -m benchmarks.cluster.noisy_tenant [--times 10] [--unpaced 8] [--minimal] [--check]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from nextgen.cli.local.plan import MINIMAL, ClusterSize
from nextgen.client import Client
from nextgen.harness.load.pulsar.lookup_connection import LookupConnection, LookupTally
from nextgen.harness.load.pulsar.lookup_requests import RequestDeck
from nextgen.harness.perf.bench import Bench, bench
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.decider import RejectionCode
from nextgen.pulsar.client import PulsarClientConnection
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandLookupTopic, CommandLookupTopicResponse

SHARE = {"known": 200, "absent": 50, "create": 20, "first": 20}
"""Requests a second of each kind that a tenant is entitled to."""

KNOWN_TOPICS = 400
ABSENT_NAMES = 200
UNPACED_WINDOW = 4_000
"""Requests in flight of one unpaced connection: nearly what a stock Java client allows itself."""

SERVED_WITHIN_S = 1.0
IN_FLIGHT_MAX = 2_000
"""Requests of a kind in flight in one generator; beyond it an arrival counts as not served."""

P99_RATIO_MAX = 2.0
P99_MS_MAX = 50.0
SERVED_SHARE_MIN = 0.95
TIMEOUT_MS = 5_000


class WrongAnswer(Exception):
    """The server said what is not so."""


class Tally:
    """Latencies of one kind of request, counted from when each was due."""

    def __init__(self) -> None:
        self.due = 0
        self.refused = 0
        self.wrong = ""
        self.latencies_s: list[float] = []

    def as_json(self) -> dict[str, Any]:
        ordered = sorted(self.latencies_s)
        served = sum(latency <= SERVED_WITHIN_S for latency in ordered)
        return {
            "demand": self.due,
            "served_share": round(served / max(1, self.due), 4),
            "refused": self.refused,
            "p50_ms": _quantile_ms(ordered, 0.50),
            "p99_ms": _quantile_ms(ordered, 0.99),
            "max_ms": _quantile_ms(ordered, 1.0),
            "wrong": self.wrong,
        }


class Tenant:
    """The requests of one tenant, from this process."""

    def __init__(self, job: dict[str, Any], client: Client, pulsar: PulsarClientConnection) -> None:
        self._client = client
        self._pulsar = pulsar
        self._prefix = f"persistent://{job['namespace']}/"
        self._stem = job["stem"]
        self._numbers = itertools.count()
        self._known = itertools.cycle(known_names(job["namespace"]))
        self._absent = itertools.cycle(
            [f"{self._prefix}absent-{number}" for number in range(ABSENT_NAMES)]
        )
        self._to_look_up: asyncio.Queue[str] = asyncio.Queue()

    def request(self, kind: str) -> Callable[[], Awaitable[None]]:
        """Return what carries out one request; it raises ``WrongAnswer`` or ``MetadataError``."""
        return {
            "known": self._look_up_known,
            "absent": self._look_up_absent,
            "create": self._create,
            "first": self._look_up_first,
        }[kind]

    async def _look_up_known(self) -> None:
        command = BaseCommand(
            type=BaseCommand.LOOKUP, lookupTopic=CommandLookupTopic(topic=next(self._known))
        )
        answer = (await self._pulsar.request(command, timeout_ms=TIMEOUT_MS)).lookupTopicResponse
        if answer.response != CommandLookupTopicResponse.Connect:
            raise WrongAnswer(f"a known topic is not answered: {answer}")

    async def _look_up_absent(self) -> None:
        (answer,) = await self._client.lookup([next(self._absent)])
        if answer.rejection_code != RejectionCode.NOT_FOUND and not answer.retryable:
            raise WrongAnswer(f"an absent topic is not absent: {answer}")

    async def _create(self) -> None:
        name = f"{self._prefix}{self._stem}-{next(self._numbers)}"
        (created,) = await self._client.create_topics([name])
        if created.rejection_code:
            raise WrongAnswer(f"a topic is not created: {created}")
        self._to_look_up.put_nowait(name)

    async def _look_up_first(self) -> None:
        (answer,) = await self._client.lookup([await self._to_look_up.get()])
        if answer.rejection_code == RejectionCode.NOT_FOUND:
            raise WrongAnswer(f"a created topic is absent: {answer}")
        if answer.rejection_code:
            raise MetadataError(answer.message)


async def paced(
    per_second: float, seconds: float, carry_out: Callable[[], Awaitable[None]]
) -> Tally:
    """Send requests at fixed times, whatever becomes of those before."""
    tally = Tally()
    tasks: set[asyncio.Task[None]] = set()

    async def one(due: float) -> None:
        try:
            await carry_out()
        except WrongAnswer as error:
            tally.wrong = tally.wrong or str(error)
        except MetadataError:
            tally.refused += 1
        else:
            tally.latencies_s.append(time.monotonic() - due)

    began = time.monotonic()
    for number in range(int(per_second * seconds)):
        due = began + number / per_second
        if (wait := due - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        tally.due += 1
        if len(tasks) < IN_FLIGHT_MAX:
            task = asyncio.create_task(one(due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    if tasks:
        await asyncio.wait(set(tasks), timeout=2 * TIMEOUT_MS / 1000)
    for task in tasks:
        task.cancel()
    return tally


async def generate(job: dict[str, Any]) -> dict[str, Any]:
    """Be one tenant for ``seconds``; returns a tally of each kind of request."""
    host, _, port = job["pulsar"].rpartition(":")
    loop = asyncio.get_running_loop()
    unpaced_tally = LookupTally(is_measuring=True)
    frames = known_names(job["namespace"]) * (UNPACED_WINDOW // KNOWN_TOPICS + 1)
    deck = RequestDeck.of_lookups(frames)
    unpaced = [
        (
            await loop.create_connection(
                lambda: LookupConnection(deck, slice(None), UNPACED_WINDOW, unpaced_tally),
                host,
                int(port),
            )
        )[1]
        for _ in range(job["unpaced"])
    ]
    async with (
        Client(job["targets"], timeout_ms=TIMEOUT_MS) as client,
        await PulsarClientConnection.open(host, int(port)) as pulsar,
    ):
        tenant = Tenant(job, client, pulsar)
        kinds = list(SHARE)
        tallies = await asyncio.gather(
            *(
                paced(SHARE[kind] * job["times"], job["seconds"], tenant.request(kind))
                for kind in kinds
            )
        )
    for connection in unpaced:
        connection.abort()
    await asyncio.gather(*(each.finished for each in unpaced), return_exceptions=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    result = {kind: tally.as_json() for kind, tally in zip(kinds, tallies, strict=True)}
    return {
        "kinds": result,
        "unpaced_answers": unpaced_tally.answers,
        "unpaced_errors": unpaced_tally.errors + unpaced_tally.unexpected,
        "generator_cpu_s": round(used.ru_utime + used.ru_stime, 2),
    }


async def phase(ready: Bench, jobs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Run one generator for each job at the same time; returns theirs and the servers' numbers."""
    assert ready.cluster is not None, "the cluster is our own"
    nodes = list(ready.cluster.running)
    before = {node: ready.cpu_seconds(node) or 0.0 for node in nodes}
    began = time.monotonic()
    results = await asyncio.gather(*(_in_a_process(job) for job in jobs.values()))
    seconds = time.monotonic() - began
    cpu = {node: round((ready.cpu_seconds(node) or 0.0) - before[node], 2) for node in nodes}
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": cpu,
        **dict(zip(jobs, results, strict=True)),
    }


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    size = MINIMAL if arguments.minimal else ClusterSize(discovery=1)
    async with bench(None, size) as ready:
        namespaces = await _prepare(ready)
        quiet, noisy = (
            {
                "namespace": namespace,
                "targets": list(ready.targets[:1]),
                "pulsar": ready.pulsar,
                "seconds": arguments.seconds,
                "unpaced": 0,
                "times": 1,
            }
            for namespace in namespaces
        )
        noisy |= {"times": arguments.times, "unpaced": arguments.unpaced, "stem": "noisy"}
        alone = await phase(ready, {"quiet": quiet | {"stem": "alone"}})
        with busy_cores():
            contended = await phase(ready, {"quiet": quiet | {"stem": "contended"}})
        beside = await phase(ready, {"quiet": quiet | {"stem": "beside"}, "noisy": noisy})
    return report(alone, contended, beside, arguments)


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy with a process that does nothing else."""
    command = (sys.executable, "-c", "while True: pass")
    loops = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def is_autogrouped() -> bool:
    """Return whether Linux divides cores between sessions of processes, not between processes.

    It lets a process of a session with a busy one wait for tenths of a second on a full machine.
    """
    setting = Path("/proc/sys/kernel/sched_autogroup_enabled")
    return setting.exists() and setting.read_text().strip() == "1"


def report(
    alone: dict[str, Any],
    contended: dict[str, Any],
    beside: dict[str, Any],
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Return what was measured and which goals were missed. Pure."""
    wrong, missed = [], []
    for kind in SHARE:
        before, after = alone["quiet"]["kinds"][kind], beside["quiet"]["kinds"][kind]
        loud = beside["noisy"]["kinds"][kind]
        wrong += [f"{kind}: {one['wrong']}" for one in (before, after, loud) if one["wrong"]]
        if after["served_share"] < SERVED_SHARE_MIN:
            missed.append(f"{kind}: {after['served_share']:.1%} of the demand served")
        if after["p99_ms"] > min(P99_MS_MAX, P99_RATIO_MAX * before["p99_ms"]):
            missed.append(f"{kind}: p99 {after['p99_ms']} ms, alone {before['p99_ms']} ms")
    return {
        "benchmark": "noisy_tenant",
        "wrong": wrong,
        "missed": missed,
        "alone": alone,
        "contended": contended,
        "beside": beside,
        "run": {
            **vars(arguments),
            "share": SHARE,
            "autogroup": is_autogrouped(),
            "load_average_after": os.getloadavg()[0],
        },
    }


def known_names(namespace: str) -> list[str]:
    return [f"persistent://{namespace}/known-{number}" for number in range(KNOWN_TOPICS)]


async def _prepare(ready: Bench) -> tuple[str, str]:
    """Make two tenants with assigned topics; return their namespaces."""
    namespaces = ("quiet/load", "noisy/load")
    async with Client(ready.targets, timeout_ms=60_000) as client:
        for namespace in namespaces:
            await client.create_tenant(namespace.partition("/")[0])
            await client.create_namespace(namespace)
            await client.create_topics(known_names(namespace))
            await client.lookup(known_names(namespace))
    return namespaces


async def _in_a_process(job: dict[str, Any]) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.cluster.noisy_tenant",
        "--generate",
        json.dumps(job),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"a generator ended with {process.returncode}")
    told: dict[str, Any] = json.loads(output.splitlines()[-1])
    return told


def _quantile_ms(ordered: list[float], share: float) -> float:
    if not ordered:
        return float("inf")
    return round(1_000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--times", type=float, default=10.0)
    parser.add_argument("--unpaced", type=int, default=8)
    parser.add_argument("--minimal", action="store_true", help="one process of each kind")
    parser.add_argument("--check", action="store_true", help="fail if a goal is missed")
    parser.add_argument("--generate", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if arguments.generate:
            print(json.dumps(runner.run(generate(json.loads(arguments.generate)))))
            return
        result = runner.run(measure(arguments))
    print(json.dumps(result))
    if result["wrong"] or (arguments.check and result["missed"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
