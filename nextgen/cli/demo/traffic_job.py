"""The demo's client: a process of its own that creates, looks up, checks, and remembers.

It remembers every topic whose creation was acknowledged, and at the end asks the cluster for all
of them. A lookup is done when every name in it got an answer that its broker confirmed; until then
it is asked again, at the other discovery node, for RETRY_MS at most.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

from nextgen.cli.demo import names
from nextgen.cli.demo.inventory_check import missing_topics
from nextgen.cli.discovery_client import DiscoveryClient, new_command_id
from nextgen.cli.load.answer_check import AnswerChecker
from nextgen.cli.load.create_jobs import create_topics
from nextgen.cli.load.measure import Latencies
from nextgen.cli.load.reporter import Reporter
from nextgen.kernel.errors import InvalidRequest, MetadataError, Unavailable
from protos.nextgen.v1.discovery_service_pb2 import (
    CreateNamespaceRequest,
    CreateTenantRequest,
    LookupRequest,
)
from protos.nextgen.v1.inventory_pb2 import LookupAnswer

BULK_BATCH = 1_000
BULK_IN_FLIGHT = 4
TRICKLE_BATCH = 10
TRICKLE_PAUSE_MS = 100
NAMES_PER_LOOKUP = 40
LOOKUPS_PER_SECOND = 50
RETRY_MS = 10_000
RETRY_PAUSE_MS = 50
ATTEMPT_TIMEOUT_MS = 2_000
LOOKUPS_IN_FLIGHT_MAX = LOOKUPS_PER_SECOND * RETRY_MS // 1_000 + 100
"""Even if every lookup waited its whole time, the rate would be kept."""

TELL_INTERVAL_MS = 250
WAITS_FOR_A_BROKER = frozenset({"NO_BROKER", "NO_CAPACITY", "SESSION_EXPIRED", "STALE_EPOCH"})
"""Refusals that pass: brokers come back."""


class _Traffic:
    def __init__(self, job: dict[str, Any], reporter: Reporter) -> None:
        self.targets: list[str] = job["targets"]
        self.reporter = reporter
        self.client = DiscoveryClient(self.targets, timeout_ms=30_000)
        self.checker = AnswerChecker()
        self.acknowledged: list[str] = []
        self.counts: Counter[str] = Counter()
        self.waits = Latencies()
        self.recent = Latencies()
        self.wrong: list[str] = []
        self.longest_wait_ms = 0.0
        self._turn = 0

    async def create_parents(self) -> None:
        for tenant in names.tenants():
            await self.client.call(
                "CreateTenant", CreateTenantRequest(command_id=new_command_id(), name=tenant)
            )
        for namespace in names.namespaces():
            await self.client.call(
                "CreateNamespace",
                CreateNamespaceRequest(command_id=new_command_id(), name=namespace),
            )

    async def create(self, batch: list[str]) -> None:
        """Create topics; only what was acknowledged counts."""
        refused = await create_topics(self.client, batch)
        if refused:
            raise InvalidRequest(f"a create was refused: {refused[0]}")
        self.acknowledged += batch
        self.counts["created"] += len(batch)

    async def create_bulk(self, wanted: list[str]) -> None:
        in_flight = asyncio.Semaphore(BULK_IN_FLIGHT)

        async def one(batch: list[str]) -> None:
            async with in_flight:
                await self.create(batch)
                self.reporter.advance(len(batch))

        async with asyncio.TaskGroup() as tasks:
            for start in range(0, len(wanted), BULK_BATCH):
                tasks.create_task(one(wanted[start : start + BULK_BATCH]))

    async def create_trickle(self, wanted: list[str]) -> None:
        for start in range(0, len(wanted), TRICKLE_BATCH):
            await self.create(wanted[start : start + TRICKLE_BATCH])
            await asyncio.sleep(TRICKLE_PAUSE_MS / 1000)
        self.reporter.send({"event": "all_created", "created": self.counts["created"]})

    async def look_up_steadily(self) -> None:
        in_flight = asyncio.Semaphore(LOOKUPS_IN_FLIGHT_MAX)
        chooser = random.Random(2)
        deck: list[str] = []
        next_at = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            while not self.reporter.stopping.is_set():
                if len(deck) < NAMES_PER_LOOKUP:
                    # Every topic once, in a fresh order, before any of them again.
                    deck = chooser.sample(self.acknowledged, len(self.acknowledged))
                batch, deck = deck[:NAMES_PER_LOOKUP], deck[NAMES_PER_LOOKUP:]
                await in_flight.acquire()
                task = tasks.create_task(self._look_up(batch))
                task.add_done_callback(lambda _task: in_flight.release())
                next_at += 1 / LOOKUPS_PER_SECOND
                await asyncio.sleep(max(0.0, next_at - time.perf_counter()))

    async def _look_up(self, batch: list[str]) -> None:
        began_at = time.perf_counter()
        pending = batch
        self._turn += 1
        turn = self._turn
        while pending:
            pending = await self._ask(pending, self.targets[turn % len(self.targets)])
            waited_ms = (time.perf_counter() - began_at) * 1000
            if not pending:
                break
            if waited_ms > RETRY_MS:
                self.counts["failed_after_retry"] += len(pending)
                break
            self.counts["asked_again"] += len(pending)
            turn += 1
            await asyncio.sleep(RETRY_PAUSE_MS / 1000)
        waited = time.perf_counter() - began_at
        self.longest_wait_ms = max(self.longest_wait_ms, waited * 1000)
        self.counts["lookups"] += len(batch)
        self.waits.add(waited)
        self.recent.add(waited)

    async def _ask(self, asked: list[str], target: str) -> list[str]:
        """Return the names that have no confirmed answer yet."""
        try:
            response = await self.client.call_at(
                target, "Lookup", LookupRequest(topics=asked), timeout_ms=ATTEMPT_TIMEOUT_MS
            )
        except MetadataError:
            self.counts["failed_attempts"] += 1
            return asked
        pending: list[str] = []
        served: list[LookupAnswer] = []
        for name, answer in zip(asked, response.answers, strict=True):
            if not answer.rejection_code:
                served.append(answer)
            elif answer.retryable or answer.rejection_code in WAITS_FOR_A_BROKER:
                pending.append(name)
            else:
                # The topic was acknowledged: saying that it is not there is a wrong answer.
                self.wrong.append(f"{name}: {answer.rejection_code} {answer.message}")
        outdated = await self.checker.check(served)
        return pending + [answer.topic for answer in outdated]

    async def tell(self) -> None:
        while True:
            await asyncio.sleep(TELL_INTERVAL_MS / 1000)
            recent, self.recent = self.recent, Latencies()
            told = {
                **self.counts,
                "wrong": self.wrong_count,
                **{f"wait_{name}": value for name, value in recent.summary().items()},
            }
            self.reporter.send({"tick": told})

    @property
    def wrong_count(self) -> int:
        return len(self.wrong) + self.checker.counts["wrong"]  # type: ignore[index]

    async def close(self) -> None:
        await self.checker.close()
        await self.client.__aexit__()


async def traffic(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Create ``topics`` topics, the last ``trickle`` of them while looking up, until stopped."""
    wanted = names.topics(job["topics"])
    bulk = len(wanted) - job["trickle"]
    traffic = _Traffic(job, reporter)
    try:
        await traffic.create_parents()
        reporter.send({"event": "parents_created"})
        await traffic.create_bulk(wanted[:bulk])
        reporter.send({"event": "bulk_created", "created": traffic.counts["created"]})
        telling = asyncio.create_task(traffic.tell())
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(traffic.look_up_steadily())
                tasks.create_task(traffic.create_trickle(wanted[bulk:]))
        finally:
            telling.cancel()
        reporter.send({"event": "verifying"})
        missing = await missing_topics(traffic.client, traffic.acknowledged)
    except* MetadataError as group:
        raise Unavailable(str(group.exceptions[0])) from group
    finally:
        await traffic.close()
    return {
        "created": len(traffic.acknowledged),
        "lookups": traffic.counts["lookups"],
        "wrong": traffic.wrong_count,
        "lost": len(missing),
        "failed_after_retry": traffic.counts["failed_after_retry"],
        "max_gap_ms": round(traffic.longest_wait_ms),
        "asked_again": traffic.counts["asked_again"],
        "verdicts": {verdict.value: count for verdict, count in traffic.checker.counts.items()},
        "wait_ms": traffic.waits.summary(),
        "examples": [*traffic.wrong[:5], *traffic.checker.wrong[:5], *missing[:5]],
    }
