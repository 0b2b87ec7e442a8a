"""Jobs that look topics up: all of a range, cold ones by one, cold bursts, many at one topic."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.harness.load.measure import Latencies
from nextgen.harness.load.reporter import Reporter
from nextgen.harness.load.topic_range import TopicRange
from nextgen.kernel.errors import DeadlineExceeded, MetadataError
from nextgen.tasks.groups import TaskGroup
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest
from protos.nextgen.v1.inventory_pb2 import LookupAnswer

RETRY_PAUSE_MS = 100
ROUNDS_MAX = 300
"""Rounds of retryable answers; with the pauses half a minute."""


async def lookup_all(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Look a range up until every topic is served, many names a message."""
    names = TopicRange.from_json(job["topics"]).names()
    size: int = job["names_per_message"]
    in_flight = asyncio.Semaphore(job["in_flight"])
    targets: list[str] = job["targets"]
    assigned = 0
    first_refusal = ""

    async def ask(number: int, batch: list[str]) -> None:
        nonlocal assigned, first_refusal
        turn = number % len(targets)
        async with in_flight:
            answers = await lookup_until_served(clients[turn], batch)
        served = sum(not answer.rejection_code for answer in answers)
        refused = [answer for answer in answers if answer.rejection_code]
        if refused and not first_refusal:
            first_refusal = f"{refused[0].topic}: {refused[0].message}"
        assigned += served
        reporter.advance(len(batch))

    clients = [
        DiscoveryClient(targets[place:] + targets[:place], timeout_ms=60_000)
        for place in range(len(targets))
    ]
    began_at = time.perf_counter()
    async with TaskGroup() as tasks:
        for number, start in enumerate(range(0, len(names), size)):
            tasks.create_task(ask(number, names[start : start + size]))
    seconds = time.perf_counter() - began_at
    for client in clients:
        await client.__aexit__()
    return {
        "count": assigned,
        "errors": len(names) - assigned,
        "first_error": first_refusal,
        "seconds": seconds,
    }


async def lookup_until_served(client: DiscoveryClient, names: Sequence[str]) -> list[LookupAnswer]:
    """Return the answers; retry those that are retryable."""
    answers: dict[str, LookupAnswer] = {}
    asked = list(names)
    for _ in range(ROUNDS_MAX):
        response = await client.call("Lookup", LookupRequest(topics=asked))
        answers |= dict(zip(asked, response.answers, strict=True))
        asked = [name for name in asked if answers[name].retryable]
        if not asked:
            break
        await asyncio.sleep(RETRY_PAUSE_MS / 1000)
    return [answers[name] for name in names]


async def lookup_serial(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Look a range up one topic at a time, in turn at every target; no retries are hidden."""
    names = TopicRange.from_json(job["topics"]).names()
    return await _lookup_timed([[name] for name in names], job["targets"], reporter)


async def lookup_bursts(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Look a range up in bursts of one message each, one burst after the other."""
    names = TopicRange.from_json(job["topics"]).names()
    size: int = job["burst"]
    bursts = [names[start : start + size] for start in range(0, len(names), size)]
    return await _lookup_timed(bursts, job["targets"], reporter)


async def _lookup_timed(
    messages: Sequence[list[str]], targets: Sequence[str], reporter: Reporter
) -> dict[str, Any]:
    latencies = Latencies()
    errors: list[str] = []
    began_at = time.perf_counter()
    async with DiscoveryClient(targets) as client:
        for number, names in enumerate(messages):
            target = targets[number % len(targets)]
            sent_at = time.perf_counter()
            try:
                response = await client.call_at(target, "Lookup", LookupRequest(topics=names))
                refused = [a.message for a in response.answers if a.rejection_code]
            except MetadataError as error:
                refused = [str(error)] * len(names)
            latencies.add(time.perf_counter() - sent_at)
            errors += refused
            reporter.advance(len(names))
    count = sum(map(len, messages))
    return {
        "count": count,
        "errors": len(errors),
        "first_error": errors[0] if errors else "",
        "seconds": time.perf_counter() - began_at,
        "latency_ms": latencies.summary(),
    }


async def lookup_one_topic(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Send many concurrent lookups of one topic, an equal share through each target."""
    targets: list[str] = job["targets"]
    topic: str = job["topic"]
    latencies = Latencies()
    owners: Counter[str] = Counter()
    errors: list[str] = []

    async with DiscoveryClient(targets) as client:
        # Connections are opened before, so that the requests really meet.
        for target in targets:
            await client.channel(target).channel_ready()

        async def ask(number: int) -> None:
            sent_at = time.perf_counter()
            try:
                response = await client.call_at(
                    targets[number % len(targets)], "Lookup", LookupRequest(topics=[topic])
                )
            except MetadataError as error:
                errors.append(str(error))
                return
            latencies.add(time.perf_counter() - sent_at)
            answer = response.answers[0]
            if answer.rejection_code:
                errors.append(answer.message)
            else:
                owners[f"{answer.broker_id} epoch {answer.epoch}"] += 1

        try:
            async with timeout(60), TaskGroup() as tasks:
                for number in range(job["count"]):
                    tasks.create_task(ask(number))
        except TimeoutError as error:
            raise DeadlineExceeded("the lookups of one topic took more than 60 s") from error
    reporter.advance(job["count"])
    return {
        "owners": dict(owners),
        "errors": len(errors),
        "first_error": errors[0] if errors else "",
        "latency_ms": latencies.summary(),
    }
