"""Publishes to one topic with the stock client; prints counts and latencies as one JSON line.

``--rate 0`` publishes as fast as the broker takes it. ``--read-back`` compares what is stored with
what was acknowledged. A first line is printed once the first message is acknowledged.

python -m benchmarks.brokers.quota_load --service-url pulsar://… --topic t --seconds 20 --rate 100
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from nextgen.harness.load.measure import Latencies
from nextgen.harness.load.pulsar.stock_client import load_pulsar, open_client

BODY_BYTES = 100
PENDING_MAX = 1_000
READ_TIMEOUT_MS = 10_000


class Acknowledged:
    """Numbers of acknowledged messages, by the client's own threads."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.failed = 0
        self._lock = threading.Lock()

    def callback(self, number: int) -> Callable[[Any, Any], None]:
        ok = load_pulsar().Result.Ok

        def done(result: Any, _message_id: Any) -> None:
            with self._lock:
                if result == ok:
                    self.numbers.add(number)
                else:
                    self.failed += 1

        return done


def body(number: int) -> bytes:
    return str(number).encode().ljust(BODY_BYTES, b".")


def number_of(data: bytes) -> int:
    return int(data.rstrip(b"."))


def run(given: argparse.Namespace) -> dict[str, object]:
    pulsar = load_pulsar()
    client = open_client(given.service_url)
    producer = client.create_producer(
        given.topic,
        batching_enabled=False,
        max_pending_messages=PENDING_MAX,
        block_if_queue_full=True,
        send_timeout_millis=0,
    )
    consumed = [0]
    if given.consume:

        def listen(consumer: Any, message: Any) -> None:
            consumed[0] += 1
            consumer.acknowledge(message)

        client.subscribe(given.topic, "load", message_listener=listen)
    acknowledged, latencies = Acknowledged(), Latencies()
    producer.send(body(0))
    acknowledged.numbers.add(0)
    print(json.dumps({"warm": True}), flush=True)
    number, began = 0, time.perf_counter()
    while (now := time.perf_counter()) - began < given.seconds:
        number += 1
        if given.rate:
            time.sleep(max(0.0, began + number / given.rate - now))
            sent = time.perf_counter()
            producer.send(body(number))
            latencies.add(time.perf_counter() - sent)
            acknowledged.numbers.add(number)
        else:
            producer.send_async(body(number), acknowledged.callback(number))
    producer.flush()
    seconds = time.perf_counter() - began
    result: dict[str, object] = {
        "sent": number + 1,
        "acknowledged": len(acknowledged.numbers),
        "failed": acknowledged.failed,
        "consumed": consumed[0],
        "seconds": round(seconds, 3),
        "latency_ms": latencies.summary(),
    }
    if given.read_back:
        stored = read_back(client, given.topic, pulsar)
        result["lost"] = len(acknowledged.numbers - stored)
    client.close()
    return result


def read_back(client: Any, topic: str, pulsar: Any) -> set[int]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    stored = set()
    while reader.has_message_available():
        stored.add(number_of(reader.read_next(timeout_millis=READ_TIMEOUT_MS).data()))
    return stored


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--service-url", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--consume", action="store_true")
    parser.add_argument("--read-back", action="store_true")
    print(json.dumps(run(parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
