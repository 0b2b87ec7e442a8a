"""The job that moves a share of the topics every second."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.harness.load.measure import Latencies
from nextgen.harness.load.reporter import Reporter
from nextgen.harness.load.topic_range import TopicRange
from nextgen.tasks.groups import TaskGroup
from protos.nextgen.v1.discovery_service_pb2 import MoveTopicsRequest
from protos.nextgen.v1.shard_service_pb2 import TopicMove

ROUNDS_PER_SECOND = 5
MOVES_IN_FLIGHT_MAX = 8


async def move(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Move ``per_second`` random topics of the range each second until stopped."""
    names = TopicRange.from_json(job["topics"]).names()
    chooser = random.Random(7)
    size = max(1, job["per_second"] // ROUNDS_PER_SECOND)
    in_flight = asyncio.Semaphore(MOVES_IN_FLIGHT_MAX)
    latencies = Latencies()
    moved = 0
    refused = 0
    first_refusal = ""

    async def move_batch(client: DiscoveryClient, batch: list[str]) -> None:
        nonlocal moved, refused, first_refusal
        try:
            sent_at = time.perf_counter()
            moves = [TopicMove(topic=name) for name in batch]
            response = await client.call("MoveTopics", MoveTopicsRequest(moves=moves))
            latencies.add(time.perf_counter() - sent_at)
            for answer in response.answers:
                if answer.rejection_code:
                    refused += 1
                    first_refusal = first_refusal or answer.message
                else:
                    moved += 1
        finally:
            in_flight.release()

    began_at = time.perf_counter()
    async with DiscoveryClient(job["targets"]) as client, TaskGroup() as tasks:
        next_at = time.perf_counter()
        while not reporter.stopping.is_set():
            await in_flight.acquire()
            tasks.create_task(move_batch(client, chooser.sample(names, size)))
            next_at = max(next_at + 1 / ROUNDS_PER_SECOND, time.perf_counter())
            await asyncio.sleep(next_at - time.perf_counter())
    seconds = time.perf_counter() - began_at
    return {
        "moved": moved,
        "refused": refused,
        "first_refusal": first_refusal,
        "per_second": round(moved / seconds, 1),
        "move_ms": latencies.summary(),
    }
