"""Stock producers and consumers that record every message in a history.

The producers never give a send up, so each one is acknowledged once or open for ever. The message
id in an acknowledgement contains the epoch of the acknowledging owner (ADR 0023), which reveals two
owners at one time.

    chaos_publish   sends to each topic at its pace until stopped, then waits for pending sends
    chaos_receive   has a consumer on each topic until stopped
    chaos_drain reads each topic from its first message on, until no acknowledged message is
    missing, or no more arrive

The last two may read the topics at their shadows: ``read_at`` has one for each topic. What they
record is of the topics, whose message ids shadows have. With ``is_group`` they record that they
are the only member of their subscription, so that their first receipts have to be in order.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nextgen.harness.history.model import Drained, Publish, Received
from nextgen.harness.history.record_file import Recorder
from nextgen.harness.load.pulsar.message_stamp import stamp_of, stamped
from nextgen.harness.load.pulsar.stock_client import load_pulsar, open_client
from nextgen.harness.load.reporter import Reporter
from nextgen.kernel.errors import Unavailable

SEGMENT_BITS = 20
"""A ledger's id is ``epoch << 20 | segment`` (ADR 0023)."""

OPEN_SENDS_MAX = 500
"""Pending sends of one producer at most. Beyond it the producer pauses: its topic has no owner."""

MESSAGE_BYTES = 64
TICK_INTERVAL_MS = 500
FLUSH_TIMEOUT_MS = 40_000
"""Time-out for pending acknowledgements after sending stops, on a cluster without faults."""

QUIET_MS = 10_000
"""After this long without a message, missing messages count as missing."""


async def chaos_publish(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Send until stopped; return how much was sent, acknowledged, and left open."""
    pulsar = load_pulsar()
    client = open_client(job["service_url"], log_path=job["log_path"])
    with Recorder(Path(job["history"])) as recorder:
        lanes: list[_Lane] = []
        try:
            await asyncio.to_thread(_open_producers, client, job, recorder, lanes)
            reporter.send({"event": "producing"})
            await _send_steadily(lanes, job["interval_ms"], reporter)
            flushed_by = time.monotonic() + FLUSH_TIMEOUT_MS / 1000
            while any(lane.open for lane in lanes) and time.monotonic() < flushed_by:  # noqa: ASYNC110 - receipts come on a thread of the client
                await asyncio.sleep(0.2)
        except pulsar.PulsarException as error:
            raise Unavailable(f"the stock client gave up: {error!r}") from error
        finally:
            await asyncio.to_thread(client.shutdown)
    return {
        "sent": sum(lane.sent for lane in lanes),
        "acked": sum(lane.acked for lane in lanes),
        "open": sum(lane.open for lane in lanes),
        "acked_by_topic": {lane.topic: sorted(lane.acknowledged) for lane in lanes},
    }


async def chaos_receive(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Receive until stopped; return how many messages came."""
    receiver = _Receiver(job, Recorder(Path(job["history"])))
    client = open_client(job["service_url"], log_path=job["log_path"])
    try:
        await _subscribe(client, job, receiver)
        reporter.send({"event": "subscribed"})
        await reporter.stopping.wait()
    finally:
        await asyncio.to_thread(client.shutdown)
        receiver.close()
    return {"received": receiver.count}


async def chaos_drain(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Read each of ``acked_by_topic`` from its first message on; return the missing messages."""
    receiver = _Receiver(job, Recorder(Path(job["history"])))
    client = open_client(job["service_url"], log_path=job["log_path"])
    wanted: Mapping[str, list[int]] = job["acked_by_topic"]
    try:
        await _subscribe(client, job, receiver)
        while (missing := receiver.missing(wanted)) and receiver.quiet_ms < QUIET_MS:
            if reporter.stopping.is_set():
                break
            await asyncio.sleep(0.2)
        for topic in wanted:
            receiver.drained(topic)
    finally:
        await asyncio.to_thread(client.shutdown)
        receiver.close()
    return {"received": receiver.count, "missing": missing}


class _Lane:
    """One producer. ``receipt`` is called on a thread of the client."""

    def __init__(self, number: int, topic: str, producer: Any, recorder: Recorder) -> None:
        self.topic = topic
        self.sent = 0
        self.acked = 0
        self.acknowledged: list[int] = []
        self._number = number
        self._producer = producer
        self._recorder = recorder
        self._ok = load_pulsar().Result.Ok

    @property
    def open(self) -> int:
        return self.sent - self.acked

    def send(self) -> None:
        if self.open >= OPEN_SENDS_MAX:
            return
        sequence = self.sent
        self.sent += 1
        sent = Publish(self.topic, f"lane-{self._number}", sequence, time.monotonic_ns())
        self._recorder.write(sent)
        self._producer.send_async(
            stamped(self._number, sequence, MESSAGE_BYTES), self._receipt(sent)
        )

    def _receipt(self, sent: Publish) -> Callable[[Any, Any], None]:
        def receipt(result: Any, message_id: Any) -> None:
            acked_ns = time.monotonic_ns()
            if result != self._ok:
                return  # It may be stored or not.
            ledger = max(-1, message_id.ledger_id())
            self._recorder.write(
                replace(
                    sent,
                    acked_ns=acked_ns,
                    ledger=ledger,
                    entry=max(-1, message_id.entry_id()),
                    batch_index=max(-1, message_id.batch_index()),
                    epoch=max(0, ledger >> SEGMENT_BITS),
                )
            )
            self.acknowledged.append(sent.sequence)
            self.acked += 1

        return receipt


class _Receiver:
    """Records received messages, on the client's threads."""

    def __init__(self, job: dict[str, Any], recorder: Recorder) -> None:
        self._consumer: str = job["consumer"]
        self._group: str = job["subscription"] if job.get("is_group") else ""
        self._topics: Sequence[str] = job["topics"]
        self._recorder = recorder
        self._lock = threading.Lock()
        self._seen: dict[str, set[int]] = {topic: set() for topic in self._topics}
        self._heard_at = time.monotonic()
        self._is_closed = False
        self.count = 0

    @property
    def quiet_ms(self) -> float:
        return (time.monotonic() - self._heard_at) * 1000

    def listen(self, consumer: Any, message: Any) -> None:
        identity = message.message_id()
        lane, number = stamp_of(message.data())
        topic = self._topics[lane]
        with self._lock:
            if self._is_closed:
                return
            self._heard_at = time.monotonic()
            self._seen[topic].add(number)
            self.count += 1
            self._recorder.write(
                Received(
                    consumer=self._consumer,
                    topic=topic,
                    producer=f"lane-{lane}",
                    sequence=number,
                    ledger=identity.ledger_id(),
                    entry=identity.entry_id(),
                    batch_index=identity.batch_index(),
                    received_ns=time.monotonic_ns(),
                    subscription=self._group,
                    key=f"lane-{lane}" if self._group else "",
                )
            )
        try:
            consumer.acknowledge(message)
        except load_pulsar().PulsarException:
            return  # It will be redelivered, which is no error.

    def missing(self, wanted: Mapping[str, list[int]]) -> int:
        with self._lock:
            return sum(len(set(numbers) - self._seen[topic]) for topic, numbers in wanted.items())

    def drained(self, topic: str) -> None:
        with self._lock:
            self._recorder.write(Drained(self._consumer, topic))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._recorder.close()


def _open_producers(
    client: Any, job: dict[str, Any], recorder: Recorder, lanes: list[_Lane]
) -> None:
    for number, topic in enumerate(job["topics"]):
        producer = client.create_producer(
            topic,
            send_timeout_millis=0,
            max_pending_messages=OPEN_SENDS_MAX + 100,
            batching_enabled=False,
        )
        lanes.append(_Lane(number, topic, producer, recorder))


async def _send_steadily(lanes: Sequence[_Lane], interval_ms: float, reporter: Reporter) -> None:
    next_at = time.monotonic()
    told_at = 0.0
    while not reporter.stopping.is_set():
        for lane in lanes:
            lane.send()
        now = time.monotonic()
        if (now - told_at) * 1000 >= TICK_INTERVAL_MS:
            told_at = now
            counts = {"sent": sum(x.sent for x in lanes), "published": sum(x.acked for x in lanes)}
            reporter.send({"tick": counts})
        next_at = max(next_at + interval_ms / 1000, now)
        await asyncio.sleep(next_at - now)


async def _subscribe(client: Any, job: dict[str, Any], receiver: _Receiver) -> None:
    pulsar = load_pulsar()

    def subscribe() -> None:
        for topic in job.get("read_at", job["topics"]):
            client.subscribe(
                topic,
                job["subscription"],
                consumer_type=pulsar.ConsumerType.Exclusive,
                initial_position=pulsar.InitialPosition.Earliest,
                message_listener=receiver.listen,
            )

    try:
        await asyncio.to_thread(subscribe)
    except pulsar.PulsarException as error:
        raise Unavailable(f"the stock client gave up: {error!r}") from error
