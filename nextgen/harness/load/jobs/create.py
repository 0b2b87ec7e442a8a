"""Jobs that create topics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
from nextgen.harness.load.measure import Latencies
from nextgen.harness.load.reporter import Reporter
from nextgen.harness.load.topic_range import TopicRange
from nextgen.tasks.groups import TaskGroup
from protos.nextgen.v1.discovery_service_pb2 import CreateTopicsRequest
from protos.nextgen.v1.shard_service_pb2 import TopicSpec


async def create_topics(client: DiscoveryClient, names: Sequence[str]) -> list[str]:
    """Create topics in one request and return a sentence for each that was refused."""
    request = CreateTopicsRequest(
        command_id=new_command_id(), topics=[TopicSpec(name=name) for name in names]
    )
    response = await client.call("CreateTopics", request)
    return [
        f"{name}: {outcome.message} ({outcome.rejection_code})"
        for name, outcome in zip(names, response.topics, strict=True)
        if outcome.rejection_code
    ]


async def create_batched(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Create a range in batches, several in flight, in turn at every target."""
    names = TopicRange.from_json(job["topics"]).names()
    batches = [names[start : start + job["batch"]] for start in range(0, len(names), job["batch"])]
    targets: list[str] = job["targets"]
    in_flight = asyncio.Semaphore(job["in_flight"])
    latencies = Latencies()
    refusals: list[str] = []

    async def create(number: int, batch: list[str], client: DiscoveryClient) -> None:
        async with in_flight:
            sent_at = time.perf_counter()
            refused = await create_topics(client, batch)
            latencies.add(time.perf_counter() - sent_at)
        refusals.extend(refused)
        reporter.advance(len(batch))

    clients = [
        DiscoveryClient(targets[place:] + targets[:place], timeout_ms=60_000)
        for place in range(len(targets))
    ]
    began_at = time.perf_counter()
    async with TaskGroup() as tasks:
        for number, batch in enumerate(batches):
            tasks.create_task(create(number, batch, clients[number % len(clients)]))
    seconds = time.perf_counter() - began_at
    await _close(clients)
    return {
        "count": len(names) - len(refusals),
        "errors": len(refusals),
        "first_error": refusals[0] if refusals else "",
        "seconds": seconds,
        "batch_ms": latencies.summary(),
    }


async def create_serial(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Create a range one topic at a time, each after the one before was acknowledged."""
    latencies = Latencies()
    errors = 0
    began_at = time.perf_counter()
    async with DiscoveryClient(job["targets"]) as client:
        for name in TopicRange.from_json(job["topics"]).names():
            sent_at = time.perf_counter()
            errors += len(await create_topics(client, [name]))
            latencies.add(time.perf_counter() - sent_at)
            reporter.advance(1)
    return {
        "count": len(latencies.samples_ms) - errors,
        "errors": errors,
        "seconds": time.perf_counter() - began_at,
        "latency_ms": latencies.summary(),
    }


async def _close(clients: Sequence[DiscoveryClient]) -> None:
    for client in clients:
        await client.__aexit__()
