"""The job that sends steadily with stock producers, one on each topic, while processes are killed.

    hears   {"press": {"topics": [...], "window": n}}   keep n sends in flight on each of them;
                                                        no topics: stop that
            {"strike": {"at": t, "topics": [...]}}      a broker was killed, what it served
            {"stop": true}                              send no more, wait for all receipts
    tells   {"event": "producing"}, {"tick": {...}}, {"event": "flushed"}

Producers have the client's defaults, except that a send never times out. So a retried message keeps
its sequence id, and each send is acknowledged once or is still in flight at the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from nextgen.harness.load.pulsar.message_stamp import stamped
from nextgen.harness.load.pulsar.send_record import SendRecord
from nextgen.harness.load.pulsar.stock_client import load_pulsar, open_client
from nextgen.harness.load.reporter import Reporter
from nextgen.kernel.errors import Unavailable
from nextgen.tasks.first_to_end import run_until_first

IN_FLIGHT_MAX = 900
"""Sends in flight of a producer, fewer than the client's own queue holds: beyond it the producer
pauses."""

PRESS_INTERVAL_MS = 5
TICK_INTERVAL_MS = 250
PRESSED_TICK_INTERVAL_MS = 10
FLUSH_TIMEOUT_MS = 40_000
"""Time-out for the last receipts: longer than a failover that begins when sending stops."""


class _Lane:
    """One producer and the record of its sends."""

    def __init__(self, number: int, topic: str, producer: Any, message_bytes: int) -> None:
        self.topic = topic
        self.record = SendRecord()
        self._lane = number
        self._producer = producer
        self._message_bytes = message_bytes
        self._ok = load_pulsar().Result.Ok

    def send(self) -> None:
        record = self.record
        if record.in_flight >= IN_FLIGHT_MAX:
            return
        number = record.sent(time.monotonic())

        def receipt(result: Any, _message_id: Any) -> None:
            # On the client's thread, where an exception would end the process.
            if result == self._ok:
                record.acknowledged(number, time.monotonic())
            else:
                record.failed(str(result))

        self._producer.send_async(stamped(self._lane, number, self._message_bytes), receipt)


class _Publisher:
    def __init__(self, job: dict[str, Any], reporter: Reporter) -> None:
        self._job = job
        self._reporter = reporter
        self.lanes: list[_Lane] = []
        self.strikes: list[dict[str, Any]] = []
        self._pressed: list[_Lane] = []
        self._window = 0
        self._is_pressed = asyncio.Event()

    def open_producers(self, client: Any) -> None:
        """Make a producer for each topic, one after the other; blocks."""
        for number, topic in enumerate(self._job["topics"]):
            producer = client.create_producer(
                topic,
                send_timeout_millis=0,
                max_pending_messages=IN_FLIGHT_MAX + 100,
                batching_enabled=False,
            )
            self.lanes.append(_Lane(number, topic, producer, self._job["message_bytes"]))

    async def work(self) -> None:
        """Send until stopped, then wait until everything is acknowledged or given up."""
        await run_until_first(
            self._hear(),
            self._press(),
            self._tell(),
            self._send_steadily(),
            self._reporter.stopping.wait(),
        )
        await self._flush()
        while not self._reporter.commands.empty():
            self._obey(self._reporter.commands.get_nowait())

    async def _send_steadily(self) -> None:
        interval_s = self._job["interval_ms"] / 1000
        next_at = time.monotonic()
        while True:
            for lane in self.lanes:
                lane.send()
            # Missed sends are not made up for: a burst would distort the measurement.
            next_at = max(next_at + interval_s, time.monotonic())
            await asyncio.sleep(next_at - time.monotonic())

    async def _press(self) -> None:
        while True:
            await self._is_pressed.wait()
            for lane in self._pressed:
                for _ in range(self._window - lane.record.in_flight):
                    lane.send()
            await asyncio.sleep(PRESS_INTERVAL_MS / 1000)

    async def _hear(self) -> None:
        while True:
            self._obey(await self._reporter.commands.get())

    def _obey(self, command: dict[str, Any]) -> None:
        if "strike" in command:
            self.strikes.append(command["strike"])
        elif "press" in command:
            wanted = set(command["press"]["topics"])
            self._window = command["press"]["window"]
            self._pressed = [lane for lane in self.lanes if lane.topic in wanted]
            if self._pressed:
                self._is_pressed.set()
            else:
                self._is_pressed.clear()

    async def _tell(self) -> None:
        while True:
            is_pressed = self._is_pressed.is_set()
            pause_ms = PRESSED_TICK_INTERVAL_MS if is_pressed else TICK_INTERVAL_MS
            await asyncio.sleep(pause_ms / 1000)
            self._reporter.send(
                {
                    "tick": {
                        "sent": sum(lane.record.acknowledged_count for lane in self.lanes),
                        "failed": sum(lane.record.failed_count for lane in self.lanes),
                        "in_flight": sum(lane.record.in_flight for lane in self.lanes),
                        "pressed": sum(lane.record.in_flight for lane in self._pressed),
                    }
                }
            )

    async def _flush(self) -> None:
        ends_at = time.monotonic() + FLUSH_TIMEOUT_MS / 1000
        while any(lane.record.in_flight for lane in self.lanes) and time.monotonic() < ends_at:  # noqa: ASYNC110 - receipts come on a thread of the client
            await asyncio.sleep(0.2)
        self._reporter.send({"event": "flushed"})


async def publish(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Send to ``topics`` every ``interval_ms`` until stopped; return the outcome of each send.

    ``strikes`` in the result has one record for each strike that was reported to the job: the
    sends in flight to its topics, and for each of these topics the longest time between two
    acknowledgements around the strike.
    """
    pulsar = load_pulsar()
    publisher = _Publisher(job, reporter)
    client = open_client(
        job["service_url"],
        log_path=job["log_path"],
        logs_connections=job.get("logs_connections", False),
    )
    try:
        await asyncio.to_thread(publisher.open_producers, client)
        reporter.send({"event": "producing"})
        await publisher.work()
    except pulsar.PulsarException as error:
        raise Unavailable(f"the stock client gave up: {error!r}") from error
    finally:
        await asyncio.to_thread(client.shutdown)
    records = {lane.topic: lane.record for lane in publisher.lanes}
    return {
        "sent": sum(record.acknowledged_count for record in records.values()),
        "failed": sum(record.failed_count for record in records.values()),
        "first_failure": next((r.first_failure for r in records.values() if r.first_failure), ""),
        "unanswered": sum(record.in_flight for record in records.values()),
        "acknowledged": [lane.record.acknowledged_ranges() for lane in publisher.lanes],
        "longest_wait_ms": {
            topic: round(record.longest_wait_ms(), 1) for topic, record in records.items()
        },
        "strikes": [_around(strike, records) for strike in publisher.strikes],
    }


def _around(strike: dict[str, Any], records: dict[str, SendRecord]) -> dict[str, Any]:
    at: float = strike["at"]
    topics: Sequence[str] = strike["topics"]
    window_s = strike["window_ms"] / 1000
    return {
        "in_flight": sum(records[topic].in_flight_at(at) for topic in topics),
        "gaps_ms": [round(records[topic].gap_ms(at, at + window_s), 1) for topic in topics],
    }
