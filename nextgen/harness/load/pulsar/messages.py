"""Jobs with the stock client on one topic: produce in batches, produce one by one, consume.

The client blocks, so a job's work is done on a thread. The first bytes of a message are its number.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nextgen.harness.load.measure import Latencies
from nextgen.harness.load.pulsar.stock_client import load_pulsar, open_client
from nextgen.harness.load.reporter import Reporter
from nextgen.kernel.errors import DeadlineExceeded, Unavailable

NUMBER_BYTES = 8
PENDING_MESSAGES_MAX = 10_000
"""Size of the client's queue; beyond it sends wait, so memory is bounded and the rate is that of
receipts."""

RECEIVER_QUEUE_MESSAGES = 10_000
ACK_EVERY = 1_000
TELL_EVERY = 1_000
RECEIVE_TIMEOUT_MS = 20_000
SUBSCRIPTION = "perf"

Advance = Callable[[int], None]


def payload_of(number: int, message_bytes: int) -> bytes:
    """Return a message's content: its number and padding."""
    return number.to_bytes(NUMBER_BYTES, "big").ljust(message_bytes, b".")


@dataclass(slots=True)
class Numbered:
    """Checks that the messages 0 to ``count`` - 1 arrive, in order and once."""

    count: int
    received: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    unknown: int = 0
    _seen: bytearray = field(default_factory=bytearray)
    _highest: int = -1

    def __post_init__(self) -> None:
        self._seen = bytearray(self.count)

    def take(self, content: bytes) -> None:
        """Check one message, in the order of arrival."""
        number = int.from_bytes(content[:NUMBER_BYTES], "big")
        if number >= self.count or content != payload_of(number, len(content)):
            self.unknown += 1
            return
        if self._seen[number]:
            self.duplicated += 1
            return
        self._seen[number] = 1
        self.received += 1
        if number < self._highest:
            self.out_of_order += 1
        else:
            self._highest = number

    @property
    def lost(self) -> int:
        return self.count - self.received

    def as_json(self) -> dict[str, int]:
        return {
            "received": self.received,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "out_of_order": self.out_of_order,
            "unknown": self.unknown,
        }


async def produce_batched(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Send ``count`` messages as fast as the client accepts them; timed to the last receipt."""
    return await _on_thread(_produce_batched, job, reporter)


async def produce_serial(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Send ``count`` messages without batches, each after the receipt of the one before."""
    return await _on_thread(_produce_serial, job, reporter)


async def consume(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Receive and acknowledge a backlog of ``count`` messages, and check that no others arrive."""
    return await _on_thread(_consume, job, reporter)


async def _on_thread(
    work: Callable[[dict[str, Any], Advance], dict[str, Any]],
    job: dict[str, Any],
    reporter: Reporter,
) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    pulsar = load_pulsar()

    def advance(count: int) -> None:
        loop.call_soon_threadsafe(reporter.advance, count)

    try:
        return await asyncio.to_thread(work, job, advance)
    except pulsar.PulsarException as error:
        raise Unavailable(f"the stock client gave up: {error!r}") from error


class _Receipts:
    """Counts receipts, which the client reports on a thread of its own."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._ok = load_pulsar().Result.Ok
        self._count = 0
        self.failed = 0
        self.first_failure = ""
        self.last_at = 0.0
        self._all = threading.Event()

    def take(self, result: Any, _message_id: Any) -> None:
        if result != self._ok:
            self.failed += 1
            self.first_failure = self.first_failure or str(result)
        self._count += 1
        if self._count == self._wanted:
            self.last_at = time.perf_counter()
            self._all.set()

    def wait(self, timeout_s: float) -> None:
        if not self._all.wait(timeout_s):
            raise DeadlineExceeded(f"{self._count} receipts of {self._wanted} after {timeout_s} s")


def _produce_batched(job: dict[str, Any], advance: Advance) -> dict[str, Any]:
    count: int = job["count"]
    contents = [payload_of(number, job["message_bytes"]) for number in range(count)]
    receipts = _Receipts(count)
    client = open_client(job["service_url"])
    try:
        producer = client.create_producer(
            job["topic"],
            batching_enabled=True,
            block_if_queue_full=True,
            max_pending_messages=PENDING_MESSAGES_MAX,
        )
        send, take = producer.send_async, receipts.take
        began_at = time.perf_counter()
        for number, content in enumerate(contents):
            send(content, take)
            if number % TELL_EVERY == 0:
                advance(TELL_EVERY)
        producer.flush()
        receipts.wait(job["timeout_s"])
        seconds = receipts.last_at - began_at
    finally:
        client.close()
    return {
        "count": count - receipts.failed,
        "errors": receipts.failed,
        "first_error": receipts.first_failure,
        "seconds": seconds,
    }


def _produce_serial(job: dict[str, Any], advance: Advance) -> dict[str, Any]:
    count: int = job["count"]
    latencies = Latencies()
    client = open_client(job["service_url"])
    try:
        producer = client.create_producer(job["topic"], batching_enabled=False)
        for number in range(count):
            content = payload_of(number, job["message_bytes"])
            sent_at = time.perf_counter()
            producer.send(content)
            latencies.add(time.perf_counter() - sent_at)
            advance(1)
    finally:
        client.close()
    return {"count": count, "errors": 0, "first_error": "", "latency_ms": latencies.summary()}


def _consume(job: dict[str, Any], advance: Advance) -> dict[str, Any]:
    pulsar = load_pulsar()
    count: int = job["count"]
    numbered = Numbered(count)
    client = open_client(job["service_url"])
    try:
        consumer = client.subscribe(
            job["topic"],
            SUBSCRIPTION,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=RECEIVER_QUEUE_MESSAGES,
        )
        began_at = time.perf_counter()
        for number in range(1, count + 1):
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            numbered.take(message.data())
            if number % ACK_EVERY == 0 or number == count:
                consumer.acknowledge_cumulative(message)
                advance(ACK_EVERY)
        seconds = time.perf_counter() - began_at
        extra = _take_extra(consumer, numbered, job["quiet_ms"])
    except pulsar.Timeout:
        return numbered.as_json() | {"seconds": 0.0, "extra": 0}
    finally:
        client.close()
    return numbered.as_json() | {"seconds": seconds, "extra": extra}


def _take_extra(consumer: Any, numbered: Numbered, quiet_ms: int) -> int:
    """Return how many unknown or repeated messages arrive within ``quiet_ms``."""
    extra = 0
    try:
        while True:
            numbered.take(consumer.receive(quiet_ms).data())
            extra += 1
    except load_pulsar().Timeout:
        return extra
