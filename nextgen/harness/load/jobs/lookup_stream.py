"""The job that measures warm lookups over ``LookupStream``.

Requests are serialised before the measurement, so that the generator costs little: it shares the
machine with what it measures. Every answer is parsed; a share of them is checked at the broker.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

import grpc

from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.errors import error_of_rpc
from nextgen.harness.load.answer_check import AnswerChecker
from nextgen.harness.load.measure import Latencies
from nextgen.harness.load.reporter import Reporter
from nextgen.harness.load.topic_range import TopicRange
from nextgen.kernel.errors import Unavailable
from nextgen.tasks.groups import TaskGroup
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest, LookupResponse

METHOD = "/nextgen.v1.DiscoveryService/LookupStream"
CHECKS_WAITING_MAX = 8
"""Responses that wait to be checked; beyond it they stay unchecked, and are counted so."""

SHUFFLE_SEED = 20_240_229


@dataclass(slots=True)
class _Tally:
    """Counters over all streams."""

    is_measuring: bool = False
    names_total: int = 0
    names: int = 0
    errors: int = 0
    first_error: str = ""
    unchecked: int = 0
    responses: int = 0
    latencies: Latencies = field(default_factory=Latencies)


class _Stream:
    """One LookupStream with a window of requests in flight."""

    def __init__(self, call: Any, requests: list[bytes], window: int, tally: _Tally) -> None:
        self._call = call
        self._requests = requests
        self._window = asyncio.Semaphore(window)
        self._tally = tally
        self._sent_at: dict[int, float] = {}

    async def send_until(self, stop: asyncio.Event) -> None:
        """Send every request once, and then repeatedly until stopped."""
        place = 0
        while place < len(self._requests) or not stop.is_set():
            await self._window.acquire()
            request = self._requests[place % len(self._requests)]
            self._sent_at[place] = time.perf_counter()
            # Serialised messages one behind the other are one message with the fields of both.
            await self._call.write(request + LookupRequest(request_id=place).SerializeToString())
            place += 1
        await self._call.done_writing()

    async def receive(self, checks: asyncio.Queue[LookupResponse], check_every: int) -> None:
        tally = self._tally
        while (data := await self._call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            response = LookupResponse.FromString(data)
            self._window.release()
            sent_at = self._sent_at.pop(response.request_id)
            if response.HasField("error"):
                tally.errors += 1
                tally.first_error = tally.first_error or response.error.message
                continue
            count = len(response.answers)
            tally.names_total += count
            if tally.is_measuring:
                tally.names += count
                tally.latencies.add(time.perf_counter() - sent_at)
            for answer in response.answers:
                if answer.rejection_code:
                    tally.errors += 1
                    tally.first_error = tally.first_error or f"{answer.topic}: {answer.message}"
            tally.responses += 1
            if check_every and tally.responses % check_every == 0:
                if checks.full():
                    tally.unchecked += count
                else:
                    checks.put_nowait(response)


async def lookup_stream(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Look a range up repeatedly for some time, at one discovery node.

    The measurement begins after ``warm_seconds``, and after every name was looked up once.
    """
    streams: int = job["streams"]
    requests = _requests(job)
    tally = _Tally()
    checker = AnswerChecker()
    checks: asyncio.Queue[LookupResponse] = asyncio.Queue(CHECKS_WAITING_MAX)
    stop = asyncio.Event()
    channels = [open_channel(job["target"]) for _ in range(streams)]
    senders = [
        _Stream(_open_stream(channel), requests[n::streams], job["in_flight"], tally)
        for n, channel in enumerate(channels)
    ]
    checking = asyncio.create_task(_check(checks, checker))
    try:
        async with TaskGroup() as tasks:
            for sender in senders:
                tasks.create_task(sender.send_until(stop))
                tasks.create_task(sender.receive(checks, job["check_every"]))
            tasks.create_task(_time(job, tally, stop, reporter))
    except* grpc.RpcError as group:
        error = next(e for e in group.exceptions if isinstance(e, grpc.RpcError))
        raise Unavailable(str(error_of_rpc(error))) from error
    finally:
        await checks.join()
        checking.cancel()
        await checker.close()
        await asyncio.gather(*map(close_channel, channels))
    return {
        "names_total": tally.names_total,
        "names": tally.names,
        "seconds": job["seconds"],
        "errors": tally.errors,
        "first_error": tally.first_error,
        "latency_ms": tally.latencies.summary(),
        "checked": {verdict.value: count for verdict, count in checker.counts.items()},
        "wrong": checker.wrong[:10],
        "unchecked": tally.unchecked,
    }


def _open_stream(channel: Any) -> Any:
    """Return a LookupStream call that sends and receives bytes."""
    return channel.stream_stream(METHOD)()


def _requests(job: dict[str, Any]) -> list[bytes]:
    """Return the range as serialised requests without ids; neighbouring topics are in different
    requests."""
    names = TopicRange.from_json(job["topics"]).names()
    random.Random(SHUFFLE_SEED).shuffle(names)
    size: int = job["names_per_message"]
    return [
        LookupRequest(topics=names[start : start + size]).SerializeToString()
        for start in range(0, len(names), size)
    ]


async def _time(
    job: dict[str, Any], tally: _Tally, stop: asyncio.Event, reporter: Reporter
) -> None:
    await asyncio.sleep(job["warm_seconds"])
    while tally.names_total < job["topics"]["count"]:  # noqa: ASYNC110 - no hot path for it
        await asyncio.sleep(0.05)
    tally.is_measuring = True
    ends_at = time.perf_counter() + job["seconds"]
    answered = 0
    while (left := ends_at - time.perf_counter()) > 0:
        with_timeout = min(left, 0.1)
        await asyncio.sleep(with_timeout)
        reporter.advance(tally.names - answered)
        answered = tally.names
    tally.is_measuring = False
    stop.set()


async def _check(checks: asyncio.Queue[LookupResponse], checker: AnswerChecker) -> None:
    while True:
        response = await checks.get()
        try:
            await checker.check([a for a in response.answers if not a.rejection_code])
        finally:
            checks.task_done()
