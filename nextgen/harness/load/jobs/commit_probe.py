"""The job that measures commits of a shard: creates one by one, each with its times."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
from nextgen.harness.load.reporter import Reporter
from nextgen.kernel.errors import MetadataError, Refused
from nextgen.tasks.groups import TaskGroup
from protos.nextgen.v1.discovery_service_pb2 import CreateTopicsRequest
from protos.nextgen.v1.shard_service_pb2 import TopicSpec

_ATTEMPT_TIMEOUT_MS = 15_000
"""Longer than any failover: a request that waits for one is answered in time."""

_PAUSE_MS = 10
"""Pause after a failed attempt; retries are part of the measurement."""


async def commit_probe(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Create topics one by one in several lanes until stopped; report the times of each.

    The times are of the machine's monotonic clock, which its processes share. An attempt that a
    discovery node answers with an error is counted and repeated with the same command id.
    """
    names: list[str] = job["names"]
    lanes: int = job["lanes"]
    result: dict[str, Any] = {"acknowledged": 0, "refused": 0, "failed_attempts": 0, "why": ""}

    async def create(client: DiscoveryClient, turn: int, name: str) -> None:
        request = CreateTopicsRequest(command_id=new_command_id(), topics=[TopicSpec(name=name)])
        sent_at = time.monotonic()
        while True:
            endpoint = client.endpoints[turn % len(client.endpoints)]
            try:
                response = await client.call_at(
                    endpoint, "CreateTopics", request, timeout_ms=_ATTEMPT_TIMEOUT_MS
                )
                break
            except MetadataError as error:
                result["failed_attempts"] += 1
                result["why"] = result["why"] or f"{error.reason}: {error}"
                if reporter.stopping.is_set():
                    return
                turn += 1
                await asyncio.sleep(_PAUSE_MS / 1000)
        reporter.send({"sent_at": sent_at, "acknowledged_at": time.monotonic()})
        result["acknowledged"] += 1
        result["refused"] += sum(bool(outcome.rejection_code) for outcome in response.topics)

    async def lane(number: int) -> None:
        async with DiscoveryClient(job["targets"]) as client:
            for name in names[number::lanes]:
                if reporter.stopping.is_set():
                    return
                await create(client, number, name)
        raise Refused("LIMIT_EXCEEDED", f"the probe ran out of its {len(names)} names")

    async with TaskGroup() as tasks:
        for number in range(lanes):
            tasks.create_task(lane(number))
    return result
