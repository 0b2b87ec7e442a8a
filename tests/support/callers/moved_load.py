"""A producer and a consumer of stock clients that work on while a test moves or kills things."""

from __future__ import annotations

import math
import threading
import time

import pulsar

MOVE_TIMEOUT_S = 60


class Load:
    """Sends one message after the other and receives them, on two threads; without a consumer it
    receives none."""

    def __init__(self, producer: pulsar.Producer, consumer: pulsar.Consumer | None) -> None:
        self.acknowledged: list[int] = []
        self.message_ids: list[tuple[int, int]] = []
        self.received: list[int] = []
        self._producer = producer
        self._consumer = consumer
        self._is_stopping = threading.Event()
        self._gives_up_at = math.inf
        self._sent = threading.Condition()
        self._threads = [threading.Thread(target=self._send)]
        if consumer is not None:
            self._threads.append(threading.Thread(target=self._receive))
        for thread in self._threads:
            thread.start()

    def wait_for_sends(self, count: int) -> None:
        with self._sent:
            wanted = len(self.acknowledged) + count
            assert self._sent.wait_for(lambda: len(self.acknowledged) >= wanted, MOVE_TIMEOUT_S)

    def stop(self) -> None:
        """Stop sending, and receiving once everything has come."""
        self._gives_up_at = time.monotonic() + MOVE_TIMEOUT_S
        self._is_stopping.set()
        for thread in self._threads:
            thread.join(2 * MOVE_TIMEOUT_S)
            assert not thread.is_alive()

    def _send(self) -> None:
        while not self._is_stopping.is_set():
            number = len(self.acknowledged)
            message_id = self._producer.send(b"%d" % number)
            with self._sent:
                self.acknowledged.append(number)
                if message_id.ledger_id() >= 0:  # -1: it was acknowledged as a duplicate.
                    self.message_ids.append((message_id.ledger_id(), message_id.entry_id()))
                self._sent.notify_all()

    def _receive(self) -> None:
        assert self._consumer is not None
        while time.monotonic() < self._gives_up_at:
            try:
                message = self._consumer.receive(timeout_millis=500)
            except pulsar.Timeout:
                is_complete = set(self.acknowledged) <= set(self.received)
                if self._is_stopping.is_set() and is_complete:
                    return
                continue
            self.received.append(int(message.data()))
            self._consumer.acknowledge(message)
