"""The scalable-topics client beside the stock Python client on an ordinary topic, in one run.

Both send and receive the same messages through the same brokers, one after the other, in batches;
what counts is processor time of the client's process for each message. Then splits under load,
each of the only segment of a topic of its own, so that it concerns every message; and a thousand
producers on as many topics. Prints one JSON line last.

    python -m benchmarks.brokers.scalable_client [--messages 200000] [--splits 60]
                                                 [--producers 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import os
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pulsar

from nextgen.client import st
from nextgen.client.st.errors import MemoryLimitReached
from tests.support.callers.stock_client import PulsarSystem, running_system

PAYLOAD = b"x" * 100
KEYS = 1_000
TURN = 200
"""Messages between two turns of the event loop."""

STEADY_S, BEFORE_SPLIT_S = 1.0, 0.3
STEADY_BATCH, STEADY_PAUSE_S = 10, 0.01

MEMORY_BYTES = 512 * 1024 * 1024


class Meter:
    """Time and processor time of this process from its making on."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu = time.process_time()

    def per_message(self, count: int) -> dict[str, float]:
        seconds = time.perf_counter() - self._began
        return {
            "per_second": round(count / seconds),
            "cpu_us_per_message": round((time.process_time() - self._cpu) / count * 1e6, 2),
        }


async def measure_ours(url: str, count: int) -> dict[str, Any]:
    topic = f"topic://public/default/bench-{os.getpid()}"
    async with st.PulsarClient(url, memory_limit_bytes=MEMORY_BYTES) as client:
        producer = await client.create_producer(topic)
        consumer = await client.queue_consumer(
            topic, "s", initial_position=st.InitialPosition.EARLIEST, receiver_queue=1_000
        )
        await producer.send(PAYLOAD)
        await consumer.acknowledge(await consumer.receive())
        await consumer.close()
        meter = Meter()
        for number in range(count):
            key = f"k{number % KEYS}"
            try:
                producer.submit_nowait(PAYLOAD, key=key)
            except MemoryLimitReached:
                await producer.submit(PAYLOAD, key=key)
            if number % TURN == 0:
                await asyncio.sleep(0)
        await producer.flush()
        sent = meter.per_message(count)
        consumer = await client.queue_consumer(topic, "s", receiver_queue=1_000)
        meter = Meter()
        for _ in range(count):
            message = consumer.receive_nowait() or await consumer.receive(10_000)
            await consumer.acknowledge(message)
        return {"in": sent, "out": meter.per_message(count)}


def measure_stock(system: PulsarSystem, count: int) -> dict[str, Any]:
    topic = f"persistent://public/default/bench-{os.getpid()}-stock"
    with system.client() as client:
        consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_publish_delay_ms=1,
            block_if_queue_full=True,
            max_pending_messages=count,
        )
        failures: list[Any] = []

        def stored(result: Any, _: Any) -> None:
            if result != pulsar.Result.Ok:
                failures.append(result)

        consumer.close()
        meter = Meter()
        for number in range(count):
            producer.send_async(PAYLOAD, stored, partition_key=f"k{number % KEYS}")
        producer.flush()
        sent = meter.per_message(count)
        assert not failures, failures[0]
        consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        meter = Meter()
        for _ in range(count):
            consumer.acknowledge(consumer.receive(10_000))
        return {"in": sent, "out": meter.per_message(count)}


async def measure_splits(system: PulsarSystem, count: int) -> dict[str, Any]:
    """Of each split, the longest time without a receipt, and of a message until its receipt."""
    gaps: list[float] = []
    slowest: list[float] = []
    failed = 0
    async with st.PulsarClient(system.service_url) as client:
        for number in range(count):
            topic = f"topic://public/default/split-{os.getpid()}-{number}"
            producer = await client.create_producer(topic)
            await producer.send(PAYLOAD)
            sending = asyncio.create_task(send_steadily(producer))
            await asyncio.sleep(BEFORE_SPLIT_S)
            await asyncio.to_thread(system.split_segment, topic, 0)
            waits, receipts, failures = await sending
            assert producer.layout is not None
            assert producer.layout.epoch == 1, "the split was not over before the last message"
            failed += failures
            slowest.append(max(waits))
            gaps.append(max(after - before for before, after in pairwise(receipts)))
            await producer.close()
    return {
        "splits": count,
        "messages_per_second": STEADY_BATCH / STEADY_PAUSE_S,
        "failed": failed,
        "gap_ms": percentiles(gaps),
        "slowest_message_ms": percentiles(slowest),
    }


async def send_steadily(
    producer: st.Producer[bytes],
) -> tuple[list[float], list[float], int]:
    """Send for a while; return how long each message took, when receipts came, and failures."""
    loop = asyncio.get_running_loop()
    waits: list[float] = []
    receipts = [loop.time()]
    futures: list[asyncio.Future[st.MessageId]] = []
    sent_at: dict[asyncio.Future[st.MessageId], float] = {}

    def stored(future: asyncio.Future[st.MessageId]) -> None:
        receipts.append(loop.time())
        waits.append(receipts[-1] - sent_at.pop(future))

    began = loop.time()
    number = 0
    while loop.time() - began < STEADY_S:
        for _ in range(STEADY_BATCH):
            future = producer.submit_nowait(PAYLOAD, key=f"k{number % KEYS}")
            sent_at[future] = loop.time()
            future.add_done_callback(stored)
            futures.append(future)
            number += 1
        await asyncio.sleep(STEADY_PAUSE_S)
    results = await asyncio.gather(*futures, return_exceptions=True)
    return waits, receipts, sum(isinstance(each, BaseException) for each in results)


def percentiles(seconds: list[float]) -> dict[str, float]:
    found = sorted(round(each * 1_000, 1) for each in seconds)
    return {
        "p50": found[len(found) // 2],
        "p99": found[min(math.ceil(len(found) * 0.99), len(found)) - 1],
        "max": found[-1],
    }


async def measure_producers(url: str, count: int) -> dict[str, Any]:
    """A producer on each of many topics, each of which has stored a message."""
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss
    async with st.PulsarClient(url) as client:
        gate = asyncio.Semaphore(50)

        async def produce(number: int) -> st.Producer[bytes]:
            async with gate:
                producer = await client.create_producer(
                    f"topic://public/default/many-{os.getpid()}-{number}"
                )
                await producer.send(PAYLOAD)
                return producer

        meter = Meter()
        producers = await asyncio.gather(*(produce(number) for number in range(count)))
        opened = meter.per_message(count)
        rss = process.memory_info().rss
        assert len(producers) == count
        return {
            "producers": count,
            "rss_mb": round(rss / 1e6),
            "grown_mb": round((rss - before) / 1e6),
            "opened_per_second": opened["per_second"],
        }


def ratio(part: Callable[[dict[str, Any]], float], ours: Any, stock: Any) -> float:
    return round(part(ours) / part(stock), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--splits", type=int, default=60)
    parser.add_argument("--producers", type=int, default=1_000)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="nextgen-bench-") as directory,
        running_system(Path(directory) / "cluster") as system,
    ):
        ours = asyncio.run(measure_ours(system.service_url, options.messages))
        stock = measure_stock(system, options.messages)
        splits = asyncio.run(measure_splits(system, options.splits)) if options.splits else {}
        many = asyncio.run(measure_producers(system.service_url, options.producers))
    print(
        json.dumps(
            {
                "benchmark": "scalable_client",
                "ours": ours,
                "stock_client_on_an_ordinary_topic": stock,
                "cpu_ours_to_stock_in": ratio(
                    lambda each: each["in"]["cpu_us_per_message"], ours, stock
                ),
                "cpu_ours_to_stock_out": ratio(
                    lambda each: each["out"]["cpu_us_per_message"], ours, stock
                ),
                "splits": splits,
                "many_producers": many,
                "run": vars(options),
                "load": os.getloadavg(),
            }
        )
    )


if __name__ == "__main__":
    main()
