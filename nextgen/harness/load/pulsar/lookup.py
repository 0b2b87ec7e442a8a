"""The job that measures LOOKUP or PARTITIONED_METADATA on a public Pulsar port."""

from __future__ import annotations

import asyncio
import random
import resource
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nextgen.harness.load.measure import microsecond_counts
from nextgen.harness.load.pulsar.answer_check import KnownBroker, UrlChecker
from nextgen.harness.load.pulsar.lookup_connection import LookupConnection, LookupTally
from nextgen.harness.load.pulsar.lookup_requests import Answer, RequestDeck
from nextgen.harness.load.reporter import Reporter
from nextgen.harness.load.topic_range import TopicRange
from nextgen.kernel.errors import Unavailable
from nextgen.runtime.security.tls import client_context
from nextgen.tasks.background import cancel_and_wait
from nextgen.tasks.timeouts import timeout

SHUFFLE_SEED = 20_240_229
CHECKS_WAITING_MAX = 8
"""Reads whose answers wait to be checked; beyond it they stay unchecked."""

CONNECT_TIMEOUT_MS = 5_000
FIRST_ROUND_TIMEOUT_MS = 180_000
"""Time-out for one answer per topic: seconds, but minutes on a busy machine."""

LAST_ANSWERS_TIMEOUT_MS = 10_000
"""Time-out after the last request; pending requests then count as unanswered."""

POLL_MS = 200


class _Generator:
    def __init__(self, job: dict[str, Any], reporter: Reporter) -> None:
        self._job = job
        self._reporter = reporter
        self.tally = LookupTally()
        self.checker = UrlChecker(KnownBroker(**one) for one in job["brokers"])
        self.unchecked = 0
        self.cpu_seconds = 0.0
        self._checks: asyncio.Queue[Sequence[Answer]] = asyncio.Queue(CHECKS_WAITING_MAX)
        names = TopicRange.from_json(job["topics"]).names()
        absent = TopicRange.from_json(job["absent"]).names() if job.get("absent") else []
        names += absent
        random.Random(SHUFFLE_SEED).shuffle(names)
        is_metadata = job["is_partition_metadata"]
        make = RequestDeck.of_partition_metadata if is_metadata else RequestDeck.of_lookups
        self.deck = make(names, absent)

    async def run(self) -> float:
        """Return the seconds measured.

        Raises:
            Unavailable: A connection broke.
        """
        connections = await self._connect()
        checking = asyncio.create_task(self._check())
        finished = asyncio.gather(*[connection.finished for connection in connections])
        try:
            seconds = await self._measure(finished)
            self.tally.is_stopping = True
            for connection in connections:
                connection.stop()
            async with timeout(LAST_ANSWERS_TIMEOUT_MS / 1000):
                await finished
            await self._checks.join()
        except ConnectionError as error:
            raise Unavailable(str(error)) from error
        except TimeoutError:
            raise Unavailable("the last requests were not answered") from None
        finally:
            checking.cancel()
            await cancel_and_wait(finished)
            for connection in connections:
                connection.abort()
        return seconds

    async def _connect(self) -> list[LookupConnection]:
        job = self._job
        host, _, port = job["pulsar"].rpartition(":")
        count: int = job["connections"]
        context = client_context(Path(job["ca_file"])) if job.get("ca_file") else None
        connections = []
        for number in range(count):
            connection = LookupConnection(
                self.deck,
                slice(number, None, count),
                job["in_flight"],
                self.tally,
                check_every=job["check_every"],
                on_answers=self._take,
                renames=job.get("renames", False),
            )
            try:
                async with timeout(CONNECT_TIMEOUT_MS / 1000):
                    loop = asyncio.get_running_loop()
                    await loop.create_connection(
                        partial(_itself, connection), host, int(port), ssl=context
                    )
            except (OSError, TimeoutError) as error:
                raise Unavailable(f"no connection to {job['pulsar']}: {error}") from error
            connections.append(connection)
        return connections

    async def _measure(self, finished: asyncio.Future[Any]) -> float:
        tally = self.tally
        await _sleep_unless(finished, self._job["warm_seconds"])
        warm_until = time.perf_counter() + FIRST_ROUND_TIMEOUT_MS / 1000
        while tally.answers_total < len(self.deck.topics):
            await _sleep_unless(finished, POLL_MS / 1000)
            if time.perf_counter() > warm_until:
                raise Unavailable(f"{tally.answers_total} answers in {FIRST_ROUND_TIMEOUT_MS} ms")
        self._reporter.send({"event": "measuring", "answers_total": tally.answers_total})
        used_before = _cpu_s()
        began_at = time.perf_counter()
        tally.is_measuring = True
        ends_at = began_at + self._job["seconds"]
        while (left := ends_at - time.perf_counter()) > 0:
            await _sleep_unless(finished, min(left, POLL_MS / 1000))
        tally.is_measuring = False
        seconds = time.perf_counter() - began_at
        self.cpu_seconds = _cpu_s() - used_before
        self._reporter.send({"event": "measured", "answers_total": tally.answers_total})
        return seconds

    def _take(self, answers: Sequence[Answer]) -> None:
        if self._checks.full():
            self.unchecked += len(answers)
        else:
            self._checks.put_nowait(answers)

    async def _check(self) -> None:
        while True:
            answers = await self._checks.get()
            named = [(self.deck.topic_of(one.request_id) or "", one.broker_url) for one in answers]
            # An absent topic is at no broker, whichever one its lookup leads to.
            topics = {topic: url for topic, url in named if topic not in self.deck.absent}
            try:
                await self.checker.check(topics)
            finally:
                self._checks.task_done()


def _itself(connection: LookupConnection) -> LookupConnection:
    return connection


async def _sleep_unless(finished: asyncio.Future[Any], seconds: float) -> None:
    """Sleep, but raise the error of a failed connection at once."""
    done, _ = await asyncio.wait([finished], timeout=seconds)
    if done:
        finished.result()
        raise Unavailable("the server closed every connection")


async def pulsar_lookup(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Look up a range of topics repeatedly for some time, over ``connections`` connections.

    The topics of the range ``absent`` do not exist; with ``renames`` each round has other ones.

    The measurement begins after ``warm_seconds``, and after one answer per topic. A request's time
    runs from before its write until its answer was read. A request waits only for room in its
    connection's window.
    """
    generator = _Generator(job, reporter)
    try:
        seconds = await generator.run()
    finally:
        await generator.checker.close()
    tally = generator.tally
    checker = generator.checker
    return {
        "answers_total": tally.answers_total,
        "answers": tally.answers,
        "seconds": seconds,
        "errors": tally.errors,
        "first_error": tally.first_error,
        "unexpected": tally.unexpected,
        "first_unexpected": tally.first_unexpected,
        "latency_us": microsecond_counts(tally.latencies_s),
        "checked": {verdict.value: count for verdict, count in checker.counts.items()},
        "wrong": checker.wrong,
        "unchecked": generator.unchecked,
        "cpu_seconds": generator.cpu_seconds,
    }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
