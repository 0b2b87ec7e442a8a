"""What the Rust client (pulsar-rs) sees of a cluster, through the bindings of mq-bridge.

Runs with the packages of requirements.lock on its path and prints one JSON line for each check.
tests/e2e/clients/test_rust_client.py runs it; a check that needs the cluster disturbed prints a
line with "ask" and goes on when a line comes in.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import mq_bridge
import mq_bridge_pulsar

POLL_MS = 30_000
HALF_COUNT = 100
ATTEMPTS = 200
PAUSE_S = 0.1

Value = TypeVar("Value")


class Context:
    """A service URL, and topics of this test only."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._prefix = prefix

    def topic(self, name: str) -> str:
        return f"persistent://public/default/{self._prefix}{name}"

    def endpoint(self, topic: str) -> dict[str, object]:
        config = {"url": self._url, "topic": topic, "subscription": "all"}
        return {"custom": {"name": "pulsar", "config": config}}

    def publisher(self, topic: str) -> mq_bridge.Publisher:
        return mq_bridge.Publisher.from_config(self.endpoint(topic))

    def consumer(self, topic: str) -> mq_bridge.Consumer:
        return mq_bridge.Consumer.from_config(self.endpoint(topic))

    def ask(self, what: str, topic: str) -> None:
        print(json.dumps({"ask": what, "topic": topic}), flush=True)
        answer = sys.stdin.readline()
        assert answer, "the test is gone"
        assert not answer.startswith("cannot"), answer


def taken(consumer: mq_bridge.Consumer, count: int) -> list[mq_bridge.Message]:
    """Return the next ``count`` messages, acknowledged."""
    messages: list[mq_bridge.Message] = []
    while len(messages) < count:
        batch = consumer.poll(count - len(messages), POLL_MS)
        assert batch, f"{len(messages)} of {count} messages came"
        messages += batch
        consumer.commit()
    return messages


def produce_and_consume(context: Context) -> None:
    topic = context.topic("plain")
    consumer, publisher = context.consumer(topic), context.publisher(topic)

    for number in range(50):
        publisher.send(mq_bridge.Message(str(number).encode(), {"number": str(number)}))

    messages = taken(consumer, 50)
    assert [int(message.payload) for message in messages] == list(range(50))
    assert [message.metadata["number"] for message in messages] == [str(n) for n in range(50)]


def batches(context: Context) -> None:
    topic = context.topic("batches")
    consumer, publisher = context.consumer(topic), context.publisher(topic)

    publisher.send_batch([str(number).encode() for number in range(200)])

    assert [int(message.payload) for message in taken(consumer, 200)] == list(range(200))


def batches_of_falling_size(context: Context) -> None:
    """This client gives each batch the next sequence id, however many messages are in it. Whoever
    counts on by their number takes a smaller batch behind a larger for one that is stored."""
    topic = context.topic("falling")
    consumer, publisher = context.consumer(topic), context.publisher(topic)

    publisher.send_batch([str(number).encode() for number in range(100)])
    publisher.send_batch([str(number).encode() for number in range(100, 110)])
    publisher.send(b"110")

    assert [int(message.payload) for message in taken(consumer, 111)] == list(range(111))


def acknowledgements_are_kept(context: Context) -> None:
    topic = context.topic("kept")
    first, publisher = context.consumer(topic), context.publisher(topic)
    for number in range(10):
        publisher.send(str(number).encode())
    assert len(taken(first, 10)) == 10
    first.close()

    publisher.send(b"10")

    assert [message.payload for message in taken(context.consumer(topic), 1)] == [b"10"]


def _disturbed(context: Context, disturbance: str) -> None:
    """Send, disturb, send more with a new publisher: this client's waits half a minute for the
    answer to what it sent to a producer that was closed, with a stock broker as well."""
    topic = context.topic(disturbance.replace(" ", "-"))
    consumer, publisher = context.consumer(topic), context.publisher(topic)
    for number in range(HALF_COUNT):
        publisher.send(str(number).encode())

    if disturbance == "kill owner":
        # Its consumer ends when a look-up fails with anything but ServiceNotReady.
        consumer.close()
    context.ask(disturbance, topic)
    if disturbance == "kill owner":
        consumer = _repeated(lambda: context.consumer(topic))
    publisher = _repeated(lambda: context.publisher(topic))
    for number in range(HALF_COUNT, 2 * HALF_COUNT):
        publisher.send(str(number).encode())

    found: set[int] = set()
    while len(found) < 2 * HALF_COUNT:
        found.update(int(message.payload) for message in taken(consumer, 1))
    assert sorted(found) == list(range(2 * HALF_COUNT))


def _repeated(action: Callable[[], Value]) -> Value:
    """Do what this client leaves to the application while a broker is being replaced."""
    for _ in range(ATTEMPTS - 1):
        try:
            return action()
        except RuntimeError:
            time.sleep(PAUSE_S)
    return action()


def topic_moved(context: Context) -> None:
    _disturbed(context, "move")


def broker_killed(context: Context) -> None:
    _disturbed(context, "kill owner")


CHECKS: tuple[Callable[[Context], None], ...] = (
    produce_and_consume,
    batches,
    batches_of_falling_size,
    acknowledgements_are_kept,
    topic_moved,
    broker_killed,
)


def main() -> None:
    mq_bridge_pulsar.register()
    context = Context(*sys.argv[1:])
    for check in CHECKS:
        error = ""
        begin = time.monotonic()
        try:
            check(context)
        except Exception as failed:
            error = f"{type(failed).__name__}: {failed}"
        name, took_s = check.__name__.replace("_", " "), round(time.monotonic() - begin, 3)
        print(json.dumps({"check": name, "error": error, "took_s": took_s}), flush=True)


if __name__ == "__main__":
    main()
