"""The job that looks a whole range up at the same moment."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.harness.load.measure import Latencies
from nextgen.harness.load.reporter import Reporter
from nextgen.harness.load.topic_range import TopicRange
from nextgen.kernel.errors import Definite, MetadataError
from nextgen.tasks.groups import TaskGroup
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest

ANSWER_TIMEOUT_MS = 120_000
"""Time-out for the whole burst; servers have their own, shorter ones."""


async def lookup_at_once(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Send every name of a range at once, ``names_per_message``, in turn at every target.

    A latency is that of a message, from the beginning of the burst. No retry is hidden: ``refused``
    counts retryable, definite errors.
    """
    names = TopicRange.from_json(job["topics"]).names()
    size: int = job["names_per_message"]
    messages = [
        LookupRequest(topics=names[start : start + size]) for start in range(0, len(names), size)
    ]
    async with DiscoveryClient(job["targets"]) as client:
        burst = _Burst(client, job["targets"], reporter)
        seconds = await burst.run(messages)
    return {
        "count": len(names),
        "errors": burst.errors,
        "refused": burst.refused,
        "first_error": burst.first_error,
        "seconds": seconds,
        "latency_ms": burst.latencies.summary(),
        "units_by_broker": dict(burst.units),
    }


class _Burst:
    def __init__(self, client: DiscoveryClient, targets: list[str], reporter: Reporter) -> None:
        self._client = client
        self._targets = targets
        self._reporter = reporter
        self.units: Counter[str] = Counter()
        self.latencies = Latencies()
        self.errors = 0
        self.refused = 0
        self.first_error = ""

    async def run(self, messages: list[LookupRequest]) -> float:
        """Return the seconds from the first message sent to the last answered."""
        # Connections are opened before, so that the requests really meet.
        for target in self._targets:
            await self._client.channel(target).channel_ready()
        began_at = time.perf_counter()
        async with TaskGroup() as tasks:
            for number, message in enumerate(messages):
                target = self._targets[number % len(self._targets)]
                tasks.create_task(self._ask(target, message, began_at))
        return time.perf_counter() - began_at

    async def _ask(self, target: str, message: LookupRequest, began_at: float) -> None:
        count = len(message.topics)
        try:
            response = await self._client.call_at(
                target, "Lookup", message, timeout_ms=ANSWER_TIMEOUT_MS
            )
        except MetadataError as error:
            self._fail(str(error), count, refused=count if isinstance(error, Definite) else 0)
            return
        finally:
            self._reporter.advance(count)
        self.latencies.add(time.perf_counter() - began_at)
        for answer in response.answers:
            if answer.rejection_code:
                self._fail(answer.message, 1, refused=int(answer.retryable))
            else:
                self.units[answer.broker_id] += 1

    def _fail(self, why: str, count: int, *, refused: int) -> None:
        self.errors += count
        self.refused += refused
        self.first_error = self.first_error or why
