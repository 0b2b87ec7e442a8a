"""Makes producers of new topics with the stock client; prints latencies as one JSON line.

A line is printed when the connections are open, and another one with the result.

python -m benchmarks.support.first_sends --service-url pulsar://… --namespace t/n --topics 200
"""

from __future__ import annotations

import argparse
import json
import time

from nextgen.harness.load.measure import Latencies
from nextgen.harness.load.pulsar.stock_client import open_client

WARM_TOPICS = 20
"""Their producers open a connection to every broker, which gets tenant and namespace."""


def run(service_url: str, namespace: str, topics: int) -> dict[str, object]:
    opened, acknowledged = Latencies(), Latencies()
    client = open_client(service_url)

    def produce(name: str) -> tuple[float, float]:
        """Return the seconds until a producer of a topic is there, and until its first receipt."""
        began = time.perf_counter()
        producer = client.create_producer(f"persistent://{namespace}/{name}")
        created = time.perf_counter()
        producer.send(b"first")
        return created - began, time.perf_counter() - began

    for number in range(WARM_TOPICS):
        produce(f"warm-{number}")
    print(json.dumps({"warm": WARM_TOPICS}), flush=True)
    began = time.perf_counter()
    for number in range(topics):
        created_s, sent_s = produce(f"first-{number}")
        opened.add(created_s)
        acknowledged.add(sent_s)
    seconds = time.perf_counter() - began
    # Closing a client and its producers is not measured: the process just ends.
    return {
        "seconds": seconds,
        "producer_ms": opened.summary(),
        "first_receipt_ms": acknowledged.summary(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--service-url", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--topics", type=int, required=True)
    given = parser.parse_args()
    print(json.dumps(run(given.service_url, given.namespace, given.topics)), flush=True)


if __name__ == "__main__":
    main()
