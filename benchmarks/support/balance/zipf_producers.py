"""A load generator: the stock client publishes to many topics with rates of a Zipf distribution.

The topic of number n gets a part of the rate in proportion to 1 ÷ (n + 1) to the power of
``--skew``. A line is printed when all producers are open. The end of standard input ends it: then
each topic is read again by a new subscription, and the last line has what was sent, acknowledged
and lost, and the longest time from a send to its receipt. One that a client sent twice counts once.

python -m benchmarks.support.balance.zipf_producers --service-url pulsar://… --stem persistent://t/n/x-
    --topics 300 --rate 600 [--skew 1.0] [--bytes 1000]
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter

import pulsar

from nextgen.harness.load.pulsar.stock_client import open_client

SEND_TIMEOUT_MS = 60_000
READ_TIMEOUT_MS = 20_000
TURN_S = 0.02
NUMBER_BYTES = 12


class Topic:
    """One topic's producer, and what became of what it sent."""

    def __init__(self, client: pulsar.Client, name: str, part: float) -> None:
        self.name = name
        self.part = part
        self.due = 0.0
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.failed: Counter[str] = Counter()
        self.longest_s = 0.0
        self._producer = client.create_producer(name, send_timeout_millis=SEND_TIMEOUT_MS)

    def send(self, filler: bytes) -> None:
        number, began = self.sent, time.monotonic()
        self.sent += 1

        def done(result: pulsar.Result, _message_id: object) -> None:
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            if result == pulsar.Result.Ok:
                self.acknowledged.add(number)
            else:
                self.failed[str(result)] += 1

        self._producer.send_async(b"%0*d" % (NUMBER_BYTES, number) + filler, done)

    def flush(self) -> None:
        self._producer.flush()


def send_until(stopped: threading.Event, topics: list[Topic], rate: float, size_bytes: int) -> None:
    """Send at ``rate`` messages a second, over all topics, until ``stopped`` is set."""
    filler = b"x" * max(0, size_bytes - NUMBER_BYTES)
    last = time.monotonic()
    while not stopped.is_set():
        time.sleep(TURN_S)
        now = time.monotonic()
        passed_s, last = now - last, now
        for topic in topics:
            topic.due += rate * topic.part * passed_s
            while topic.due >= 1:
                topic.due -= 1
                topic.send(filler)
    for topic in topics:
        topic.flush()


def lost(client: pulsar.Client, topics: list[Topic]) -> int:
    """Return how many acknowledged messages a new subscription does not find."""
    missing = 0
    for topic in topics:
        wanted = set(topic.acknowledged)
        consumer = client.subscribe(
            topic.name, "check", initial_position=pulsar.InitialPosition.Earliest
        )
        while wanted:
            try:
                message = consumer.receive(timeout_millis=READ_TIMEOUT_MS)
            except pulsar.Timeout:
                break
            wanted.discard(int(message.data()[:NUMBER_BYTES]))
        missing += len(wanted)
        consumer.close()
    return missing


def run(given: argparse.Namespace) -> dict[str, object]:
    client = open_client(given.service_url)
    weights = [1 / (1 + number) ** given.skew for number in range(given.topics)]
    topics = [
        Topic(client, f"{given.stem}{number}", weight / sum(weights))
        for number, weight in enumerate(weights)
    ]
    print(json.dumps({"producers": len(topics)}), flush=True)
    stopped = threading.Event()
    sending = threading.Thread(
        target=send_until, args=(stopped, topics, given.rate, given.bytes), name="sending"
    )
    sending.start()
    sys.stdin.read()
    stopped.set()
    sending.join()
    failed: Counter[str] = Counter()
    for topic in topics:
        failed += topic.failed
    return {
        "sent": sum(topic.sent for topic in topics),
        "acknowledged": sum(len(topic.acknowledged) for topic in topics),
        "failed": dict(failed),
        "longest_ms": round(1_000 * max(topic.longest_s for topic in topics)),
        "lost": lost(client, topics),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--service-url", required=True)
    parser.add_argument("--stem", required=True)
    parser.add_argument("--topics", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--skew", type=float, default=1.0)
    parser.add_argument("--bytes", type=int, default=1_000)
    print(json.dumps(run(parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
