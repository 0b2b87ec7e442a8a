"""The job that overloads a cluster with lookups, and measures its refusals and its recovery.

Phases follow one another, each with new names. A phase either keeps a number of names in flight
(``window``, which measures the cluster's capacity), or sends a number per second without waiting
for answers (``per_second``), after ``at_once`` names in one moment. No retry hides a refusal.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.harness.load.measure import Latencies
from nextgen.harness.load.reporter import Reporter
from nextgen.harness.load.topic_range import TopicRange
from nextgen.kernel.errors import (
    ConnectionLost,
    DeadlineExceeded,
    InvalidRequest,
    MetadataError,
)
from nextgen.tasks.groups import TaskGroup
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest

ANSWER_TIMEOUT_MS = 30_000
"""A lookup without an answer by then has failed."""

SERVED, REFUSED, LATE, FAILED = "served", "refused", "late", "failed"
"""Late: the server gave up waiting for another one. The lookup may be retried, but it was not
refused: it used its place in the queue until its time-out. Failed: it may not be retried."""

_LATE_CODES = frozenset({DeadlineExceeded.reason, ConnectionLost.reason})

BUCKET_MS = 500
"""Length of the intervals in which answers are counted, to find the recovery."""

TICK_MS = 10
REASONS_TOLD_MAX = 5


@dataclass(slots=True)
class Phase:
    """Numbers of names (not messages) that were requested in one phase, by outcome."""

    name: str
    began_at: float = 0.0
    seconds: float = 0.0
    asked: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    served_by_bucket: Counter[int] = field(default_factory=Counter)
    latencies: Latencies = field(default_factory=Latencies)
    refused_latencies: Latencies = field(default_factory=Latencies)
    reasons: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        buckets = range(max(self.served_by_bucket, default=-1) + 1)
        return {
            "name": self.name,
            "seconds": round(self.seconds, 3),
            "asked": self.asked,
            **{outcome: self.outcomes[outcome] for outcome in (SERVED, REFUSED, LATE, FAILED)},
            "latency_ms": self.latencies.summary(),
            "refused_latency_ms": self.refused_latencies.summary(),
            "served_by_bucket": [self.served_by_bucket[bucket] for bucket in buckets],
            "bucket_ms": BUCKET_MS,
            "reasons": dict(self.reasons.most_common(REASONS_TOLD_MAX)),
        }


async def lookup_flood(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Run ``phases`` and return their results when all requests are answered.

    Waits for {"go": true} before each phase, and sends {"event": "phase over"} after it. Requests
    that are then pending continue during the next phase.
    """
    flood = _Flood(job)
    async with DiscoveryClient(job["targets"]) as client, TaskGroup() as tasks:
        for target in job["targets"]:
            await client.channel(target).channel_ready()
        for described in job["phases"]:
            command = await reporter.commands.get()
            await flood.run(client, tasks, {**described, **command})
            reporter.send(
                {"event": "phase over", "phase": flood.phases[-1].as_json()}
                | {"in_flight": flood.in_flight}
            )
    return {
        "phases": [phase.as_json() for phase in flood.phases],
        "in_flight_max": flood.in_flight_max,
    }


class _Flood:
    def __init__(self, job: dict[str, Any]) -> None:
        self._targets: list[str] = job["targets"]
        self._size: int = job["names_per_message"]
        self._names: Iterator[str] = iter(TopicRange.from_json(job["topics"]).names())
        self._turn = 0
        self._changed = asyncio.Event()
        self.in_flight = 0
        self.in_flight_max = 0
        self.phases: list[Phase] = []

    async def run(
        self, client: DiscoveryClient, tasks: TaskGroup, described: dict[str, Any]
    ) -> None:
        phase = Phase(described["name"], time.monotonic())
        self.phases.append(phase)
        for _ in range(described.get("at_once", 0) // self._size):
            self._send(client, tasks, phase)
        if "window" in described:
            await self._keep(client, tasks, phase, described["window"], described["seconds"])
        else:
            await self._pace(client, tasks, phase, described["per_second"], described["seconds"])
        phase.seconds = time.monotonic() - phase.began_at

    async def _keep(
        self,
        client: DiscoveryClient,
        tasks: TaskGroup,
        phase: Phase,
        window: int,
        seconds: float,
    ) -> None:
        ends_at = phase.began_at + seconds
        while time.monotonic() < ends_at:
            while self.in_flight + self._size <= window:
                self._send(client, tasks, phase)
            self._changed.clear()
            await self._changed.wait()

    async def _pace(
        self,
        client: DiscoveryClient,
        tasks: TaskGroup,
        phase: Phase,
        per_second: float,
        seconds: float,
    ) -> None:
        began_at = time.monotonic()
        paced = 0
        while (elapsed := time.monotonic() - began_at) < seconds:
            while paced < elapsed * per_second:
                self._send(client, tasks, phase)
                paced += self._size
            await asyncio.sleep(TICK_MS / 1000)

    def _send(self, client: DiscoveryClient, tasks: TaskGroup, phase: Phase) -> None:
        names = [name for _, name in zip(range(self._size), self._names, strict=False)]
        assert names, "the range is too small for these phases"
        self._turn = (self._turn + 1) % len(self._targets)
        self.in_flight += len(names)
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        phase.asked += len(names)
        tasks.create_task(self._ask(client, self._targets[self._turn], names, phase))

    async def _ask(
        self, client: DiscoveryClient, target: str, names: list[str], phase: Phase
    ) -> None:
        sent_at = time.monotonic()
        reasons: Counter[str] = Counter()
        outcomes: Counter[str] = Counter()
        try:
            response = await client.call_at(
                target, "Lookup", LookupRequest(topics=names), timeout_ms=ANSWER_TIMEOUT_MS
            )
            for answer in response.answers:
                if not answer.rejection_code:
                    outcomes[SERVED] += 1
                    continue
                outcomes[outcome_of(answer.rejection_code, retryable=answer.retryable)] += 1
                reasons[f"{answer.rejection_code}: {_without_names(answer.message)}"] += 1
        except MetadataError as error:
            retryable = not isinstance(error, InvalidRequest)
            outcomes[outcome_of(error.reason, retryable=retryable)] = len(names)
            reasons[f"{error.reason}: {_without_names(str(error))}"] += len(names)
        self.in_flight -= len(names)
        self._changed.set()
        self._note(phase, outcomes, reasons, time.monotonic() - sent_at)

    def _note(
        self, phase: Phase, outcomes: Counter[str], reasons: Counter[str], seconds: float
    ) -> None:
        phase.outcomes.update(outcomes)
        phase.reasons.update(reasons)
        elapsed_ms = (time.monotonic() - phase.began_at) * 1000
        if outcomes[SERVED]:
            phase.latencies.add(seconds)
            phase.served_by_bucket[int(elapsed_ms // BUCKET_MS)] += outcomes[SERVED]
        if outcomes[REFUSED]:
            phase.refused_latencies.add(seconds)


def recovered_s(
    served_by_bucket: Sequence[int], bucket_ms: int, seconds: float, wanted: float
) -> float | None:
    """Return after how long every bucket had ``wanted`` names served; None if the last has not.

    Buckets that are missing had none. Those that are not whole within ``seconds`` are left out.
    """
    whole = int(seconds * 1000 // bucket_ms)
    padded = [*served_by_bucket, *[0] * whole][:whole]
    bad = [place for place, served in enumerate(padded) if served < wanted]
    if not padded or (bad and bad[-1] == whole - 1):
        return None
    return (bad[-1] + 1 if bad else 0) * bucket_ms / 1000


def outcome_of(code: str, *, retryable: bool) -> str:
    """Return the outcome of a lookup that was not served, by the code that it was answered with."""
    if not retryable:
        return FAILED
    return LATE if code in _LATE_CODES else REFUSED


def _without_names(message: str) -> str:
    """Return ``message`` without the parts that differ between topics, so that equal errors are
    counted together."""
    return " ".join(word for word in message.split() if "://" not in word)
