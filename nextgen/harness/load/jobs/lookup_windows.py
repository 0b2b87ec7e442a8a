"""The job that looks topics up at a constant rate and judges each window by itself.

Lookups are due at equal intervals, independent of earlier answers. A latency counts from the moment
at which a lookup was due, so a server that hangs makes all of them late, not only one. Each lookup
goes to one discovery node, in turn, and no retry hides its answer.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.harness.load.measure import quantile
from nextgen.harness.load.reporter import Reporter
from nextgen.harness.load.topic_range import TopicRange
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.governance.lookup_slo import (
    LOOKUP_ERRORS_PER_CENT_MAX,
    LOOKUP_MS_MAX,
    LOOKUP_P99_MS_MAX,
)
from nextgen.tasks.groups import TaskGroup
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest

ANSWER_TIMEOUT_MS = 10_000
"""Longer than a lookup may take, so that the latency of a late one is measured."""

OPEN_MAX = 20_000
"""Lookups in flight. Further due ones count as failed: they would be too late anyway."""

FIRST_ERRORS_TOLD = 3


@dataclass(slots=True)
class Window:
    """The lookups that were due in one stretch of time."""

    latencies_ms: list[float] = field(default_factory=list)
    errors: int = 0
    first_errors: list[str] = field(default_factory=list)

    def add(self, latency_ms: float, error: str = "") -> None:
        """Count one lookup; ``error`` is the reason of its failure, "" if it was answered."""
        self.latencies_ms.append(latency_ms)
        if latency_ms > LOOKUP_MS_MAX:
            error = error or f"took longer than {LOOKUP_MS_MAX} ms"
        if error:
            self.errors += 1
            if len(self.first_errors) < FIRST_ERRORS_TOLD:
                self.first_errors.append(error)

    def as_json(self) -> dict[str, Any]:
        """Return its numbers and the verdict: a window without lookups is not bad."""
        ordered = sorted(self.latencies_ms)
        p99, longest = quantile(ordered, 0.99), quantile(ordered, 1.0)
        reasons = []
        if p99 > LOOKUP_P99_MS_MAX:
            reasons.append(f"p99 is {p99:.0f} ms")
        if longest > LOOKUP_MS_MAX:
            reasons.append(f"one took {longest:.0f} ms")
        if self.errors * 100 > len(ordered) * LOOKUP_ERRORS_PER_CENT_MAX:
            reasons.append(f"{self.errors} of {len(ordered)} failed")
        return {
            "lookups": len(ordered),
            "errors": self.errors,
            "p50": quantile(ordered, 0.50),
            "p99": p99,
            "max": longest,
            "is_bad": bool(reasons),
            "why_bad": "; ".join(reasons),
            "first_errors": self.first_errors,
        }


async def lookup_windows(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Look up ``per_second`` names a second until stopped. Every ``cold_every``-th is a new name
    from ``cold``, while there are any left.

    Sends {"event": "looking up"} when it has begun.
    """
    generator = _Generator(job)
    async with DiscoveryClient(job["targets"]) as client:
        for target in job["targets"]:
            await client.channel(target).channel_ready()
        reporter.send({"event": "looking up"})
        async with TaskGroup() as tasks:
            await generator.run(client, tasks, reporter)
    windows = [window.as_json() for window in generator.windows]
    return {
        "windows": windows,
        "bad_windows": sum(window["is_bad"] for window in windows),
        "lookups": sum(window["lookups"] for window in windows),
        "errors": sum(window["errors"] for window in windows),
        "cold": generator.cold_asked,
    }


class _Generator:
    def __init__(self, job: dict[str, Any]) -> None:
        self._targets: list[str] = job["targets"]
        self._warm = TopicRange.from_json(job["warm"]).names()
        self._cold = iter(TopicRange.from_json(job["cold"]).names())
        self._cold_every: int = job["cold_every"]
        self._per_second: float = job["per_second"]
        self._window_s: float = job["window_seconds"]
        self._chooser = random.Random(7)
        self._open = 0
        self.cold_asked = 0
        self.windows: list[Window] = []

    async def run(self, client: DiscoveryClient, tasks: TaskGroup, reporter: Reporter) -> None:
        began_at = time.monotonic()
        number = 0
        while not reporter.stopping.is_set():
            due_at = began_at + number / self._per_second
            wait_s = due_at - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            window = self._window((due_at - began_at) / self._window_s)
            if self._open >= OPEN_MAX:
                window.add(0.0, f"{OPEN_MAX} lookups were under way")
            else:
                self._open += 1
                target = self._targets[number % len(self._targets)]
                tasks.create_task(self._ask(client, target, self._name(number), due_at, window))
            number += 1

    def _window(self, place: float) -> Window:
        while len(self.windows) <= int(place):
            self.windows.append(Window())
        return self.windows[int(place)]

    def _name(self, number: int) -> str:
        if self._cold_every and number % self._cold_every == 0:
            name = next(self._cold, None)
            if name is not None:
                self.cold_asked += 1
                return name
        return self._chooser.choice(self._warm)

    async def _ask(
        self, client: DiscoveryClient, target: str, name: str, due_at: float, window: Window
    ) -> None:
        error = ""
        try:
            request = LookupRequest(topics=[name])
            response = await client.call_at(target, "Lookup", request, timeout_ms=ANSWER_TIMEOUT_MS)
            error = response.answers[0].message if response.answers[0].rejection_code else ""
        except MetadataError as failure:
            error = str(failure)
        finally:
            self._open -= 1
        window.add((time.monotonic() - due_at) * 1000, error)
