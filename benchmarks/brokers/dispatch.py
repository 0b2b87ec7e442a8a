"""How fast does one core dispatch entries and take their acknowledgements?

    .venv/bin/python benchmarks/brokers/dispatch.py --entries 100000

A ledger in memory, consumers that acknowledge what they get in commands of 100 ids as stock clients
do, and no sockets: what is measured is the subscription alone. Rates are per second of CPU time.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import time
from collections.abc import Sequence

import uvloop

from brokers.adapters.ledger.memory_ledger import MemoryLedger, MemoryLedgerStore
from brokers.ports.consumer import Dispatch
from brokers.ports.ledger import NewEntry
from brokers.service.subscriptions.subscription import (
    Ack,
    Consumer,
    ConsumerRequest,
    Subscription,
    SubscriptionKind,
    SubscriptionStart,
)
from nextgen.pulsar.payload import message_payload
from protos.pulsar.PulsarApi_pb2 import MessageMetadata

BODY_BYTES = 100
KEYS = 1_000
ACK_IDS = 100
PERMITS = 1_000
BATCH_MESSAGES = 100


class AcknowledgingSink:
    """Reads at once, asks for more when half is used up, and acknowledges in groups."""

    is_writable = True

    def __init__(self, subscription: Subscription, target: Target) -> None:
        self._subscription = subscription
        self._target = target
        self._acks: list[Ack] = []
        self._used = 0
        self.consumer: Consumer | None = None

    def deliver(self, dispatches: Sequence[Dispatch]) -> None:
        assert self.consumer is not None
        for dispatch in dispatches:
            self._acks.append(Ack(dispatch.entry.position))
            self._used += dispatch.entry.message_count
        if len(self._acks) >= ACK_IDS:
            self.acknowledge()
        if self._used >= PERMITS // 2:
            self._subscription.flow(self.consumer, self._used)
            self._used = 0
        self._target.count(len(dispatches))

    def acknowledge(self) -> None:
        """Acknowledge what is gathered."""
        assert self.consumer is not None
        acks, self._acks = self._acks, []
        self._subscription.acknowledge(self.consumer, acks, is_cumulative=False, is_awaited=False)

    def active_changed(self, *, is_active: bool) -> None:
        """Not of interest."""

    def end(self, broker_url: str) -> None:
        """At the end of a measurement."""


class Target:
    """Waits until so many entries were delivered."""

    def __init__(self, entries: int) -> None:
        self._left = entries
        self.reached = asyncio.Event()

    def count(self, entries: int) -> None:
        """So many more were delivered."""
        self._left -= entries
        if self._left <= 0:
            self.reached.set()


async def fill(ledger: MemoryLedger, entries: int, messages: int) -> None:
    """Append entries, each with another key."""
    body = b"x" * BODY_BYTES * messages
    futures = []
    for number in range(entries):
        metadata = MessageMetadata(
            producer_name="benchmark",
            sequence_id=number,
            publish_time=1,
            partition_key=f"key-{number * 7919 % KEYS}",
        )
        if messages > 1:
            metadata.num_messages_in_batch = messages
        payload = message_payload(metadata, body)
        futures.append(ledger.append(NewEntry(payload, messages, "benchmark", number)))
    await futures[-1]


async def measure(
    ledger: MemoryLedger, kind: SubscriptionKind, consumers: int, entries: int
) -> float:
    """Return the CPU seconds until every entry is delivered and acknowledged."""
    subscription = await Subscription.create(
        kind.name,
        SubscriptionStart(is_earliest=True),
        ledger,
        lambda: time.time_ns() // 1_000_000,
        kind=kind,
    )
    target = Target(entries)
    sinks = [AcknowledgingSink(subscription, target) for _ in range(consumers)]
    for number, sink in enumerate(sinks):
        request = ConsumerRequest(number, f"consumer-{number}", kind)
        sink.consumer = subscription.add_consumer(request, sink)
    started = time.process_time()
    for sink in sinks:
        assert sink.consumer is not None
        subscription.flow(sink.consumer, PERMITS)
    await target.reached.wait()
    for sink in sinks:
        sink.acknowledge()
    elapsed = time.process_time() - started
    assert subscription.is_drained, f"not everything was acknowledged: {subscription}"
    await subscription.delete(is_forced=True)
    return elapsed


async def run(entries: int) -> dict[str, float]:
    """Return the rates."""
    rates: dict[str, float] = {}
    store = MemoryLedgerStore()
    single = await store.open("single", "", 1, topic_name="single")
    await fill(single, entries, 1)
    for kind, consumers in (
        (SubscriptionKind.EXCLUSIVE, 1),
        (SubscriptionKind.SHARED, 4),
        (SubscriptionKind.KEY_SHARED, 4),
    ):
        seconds = await measure(single, kind, consumers, entries)
        rates[f"{kind.name.lower()}_entries_per_second"] = round(entries / seconds)
        print(f"{kind.name:<11} {consumers} consumers: {entries / seconds:>10,.0f} entries/s")
    batches = await store.open("batches", "", 1, topic_name="batches")
    await fill(batches, entries // 10, BATCH_MESSAGES)
    for kind in (SubscriptionKind.EXCLUSIVE, SubscriptionKind.SHARED):
        seconds = await measure(batches, kind, 1, entries // 10)
        rate = entries // 10 * BATCH_MESSAGES / seconds
        rates[f"{kind.name.lower()}_batched_messages_per_second"] = round(rate)
        print(f"{kind.name:<11} batches of {BATCH_MESSAGES}: {rate:>10,.0f} messages/s")
    await store.close()
    return rates


def main() -> None:
    """Measure, and print the result."""
    if not __debug__:
        sys.exit("asserts must be on")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    arguments = parser.parse_args()
    rates = uvloop.run(run(arguments.entries))
    result = {
        "benchmark": "dispatch",
        "entries": arguments.entries,
        "python": platform.python_version(),
        "machine": platform.machine(),
        **rates,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
