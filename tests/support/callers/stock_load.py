"""A stock producer that never stops, and which of its messages were acknowledged."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pulsar

SEND_TIMEOUT_MS = 100_000
"""Longer than any failover: an unacknowledged message is sent again by the client, not given up."""

ARRIVES_S_MAX = 100
"""For an acknowledgement that must come. Only a failing test waits that long."""


@dataclass
class Outcome:
    """Which numbers were acknowledged, which failed; the longest time between acknowledgements."""

    sent: int = 0
    acknowledged: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    gap_ms_max: float = 0.0


class SteadyProducer:
    """Sends 0, 1, 2, ... with at most ``in_flight_max`` unacknowledged, from its own thread.

    Use it as a context; at its end everything sent has been acknowledged or has failed.
    """

    def __init__(
        self, producer: pulsar.Producer, *, in_flight_max: int, pause_ms: float = 0
    ) -> None:
        self.outcome = Outcome()
        self._producer = producer
        self._room = threading.Semaphore(in_flight_max)
        self._pause_ms = pause_ms
        self._stopping = threading.Event()
        self._progress = threading.Condition()
        self._last_s = 0.0
        self._thread = threading.Thread(target=self._send, name="steady-producer")

    def __enter__(self) -> SteadyProducer:
        self._last_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopping.set()
        self._thread.join(ARRIVES_S_MAX)
        assert not self._thread.is_alive()
        self._producer.flush()
        with self._progress:
            done = self._progress.wait_for(lambda: not self.in_flight, ARRIVES_S_MAX)
        assert done, f"{self.in_flight} sends without an outcome"

    @property
    def in_flight(self) -> int:
        outcome = self.outcome
        return outcome.sent - len(outcome.acknowledged) - len(outcome.failed)

    def wait_acknowledged(self, more: int) -> None:
        """Return when this many more messages have been acknowledged."""
        with self._progress:
            goal = len(self.outcome.acknowledged) + more
            reached = self._progress.wait_for(
                lambda: len(self.outcome.acknowledged) >= goal, ARRIVES_S_MAX
            )
        assert reached, f"{len(self.outcome.acknowledged)} of {goal} acknowledged"

    def wait_in_flight(self, count: int) -> int:
        """Return the number of pending sends once it is at least this."""
        deadline = time.monotonic() + ARRIVES_S_MAX
        while (in_flight := self.in_flight) < count:
            assert time.monotonic() < deadline, f"{in_flight} in flight"
            time.sleep(0.0002)
        return in_flight

    def _send(self) -> None:
        number = 0
        while not self._stopping.is_set():
            if not self._room.acquire(timeout=0.1):
                continue
            self.outcome.sent += 1
            self._producer.send_async(str(number).encode(), self._on_outcome(number))
            number += 1
            if self._pause_ms:
                self._stopping.wait(self._pause_ms / 1000)

    def _on_outcome(self, number: int) -> Callable[[pulsar.Result, object], None]:
        def record(result: pulsar.Result, _: object) -> None:
            with self._progress:
                if result == pulsar.Result.Ok:
                    at_s = time.monotonic()
                    gap_ms = (at_s - self._last_s) * 1000
                    self.outcome.gap_ms_max = max(self.outcome.gap_ms_max, gap_ms)
                    self._last_s = at_s
                    self.outcome.acknowledged.append(number)
                else:
                    self.outcome.failed[number] = str(result)
                self._progress.notify_all()
            self._room.release()

        return record


def assert_stored_once_in_order(stored: list[int], outcome: Outcome) -> None:
    """Fail unless the topic holds each acknowledged number exactly once, in order."""
    assert outcome.acknowledged == sorted(outcome.acknowledged)
    assert sorted(set(outcome.acknowledged) - set(stored)) == [], "acknowledged and lost"
    assert [number for number, count in Counter(stored).items() if count > 1] == [], "duplicated"
    assert stored == sorted(stored), "out of order"
