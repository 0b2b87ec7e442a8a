"""``perf produce`` and ``perf consume``: the stock Python client through one embedded broker.

Every message that was acknowledged is read again in the same run: all of them, in order, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.harness.load.pulsar.answer_check import KnownBroker
from nextgen.harness.perf.bench import SETUP_TIMEOUT_MS, Bench, check_count
from nextgen.harness.perf.pulsar.lookup import known_brokers
from protos.nextgen.v1.broker_service_pb2 import GetTopicStatsRequest
from protos.nextgen.v1.broker_service_pb2_grpc import BrokerServiceStub

WARM_MESSAGES = 2_000
"""Messages sent before the measurement, on a topic of their own, to warm code paths and files."""

QUIET_MS = 1_000
"""Time without a message after the last expected one, to see that no more arrive."""

STATS_TIMEOUT_MS = 5_000
BROKER = "broker-1"


async def measure_produce(
    bench: Bench, *, messages: int, message_bytes: int, serial: int
) -> dict[str, Any]:
    """Return the measurement: a batched run, then sends one by one; both are read again.

    Raises:
        CheckFailed: The broker's count of messages differs from the acknowledged ones.
    """
    warm, batched_topic, serial_topic = await _make_topics(bench, "warm", "batched", "serial")
    await _produce(bench, "produce_batched", "warming up", warm, WARM_MESSAGES, message_bytes)
    cpu_before = bench.cpu_seconds(BROKER)
    batched = await _produce(
        bench, "produce_batched", "producing in batches", batched_topic, messages, message_bytes
    )
    cpu_after = bench.cpu_seconds(BROKER)
    one_by_one = await _produce(
        bench, "produce_serial", "producing one by one", serial_topic, serial, message_bytes
    )
    counted = await _messages_in(bench, [batched_topic, serial_topic])
    check_count("produced messages", batched["count"] + one_by_one["count"], counted)
    read = [
        await _consume(bench, "reading again", topic, count)
        for topic, count in ((batched_topic, messages), (serial_topic, serial))
    ]
    failed = batched["errors"] + one_by_one["errors"]
    return {
        "benchmark": "produce",
        "rate": round(batched["count"] / batched["seconds"]),
        "rate_unit": "messages/s",
        "seconds": round(batched["seconds"], 3),
        **{f"serial_{name}": value for name, value in one_by_one["latency_ms"].items()},
        "errors": failed,
        "first_error": batched["first_error"],
        "wrong": _wrong(read),
        "read_again": _added(read),
        "messages_counted_by_broker": counted,
        "broker_cpu_seconds": _difference(cpu_before, cpu_after),
        "run": {
            "messages": messages,
            "message_bytes": message_bytes,
            "serial": serial,
            "client": "pulsar-client (Python), one producer, its default batches",
            "brokers": 1,
        },
    }


async def measure_consume(bench: Bench, *, messages: int, message_bytes: int) -> dict[str, Any]:
    """Return the measurement: a backlog is produced in batches, then read by one consumer."""
    warm, topic = await _make_topics(bench, "warm", "backlog")
    await _produce(bench, "produce_batched", "warming up", warm, WARM_MESSAGES, message_bytes)
    await _consume(bench, "warming up", warm, WARM_MESSAGES)
    produced = await _produce(
        bench, "produce_batched", "producing a backlog", topic, messages, message_bytes
    )
    cpu_before = bench.cpu_seconds(BROKER)
    read = await _consume(bench, "consuming", topic, messages)
    cpu_after = bench.cpu_seconds(BROKER)
    return {
        "benchmark": "consume",
        "rate": round(read["received"] / read["seconds"]) if read["seconds"] else 0,
        "rate_unit": "messages/s",
        "seconds": round(read["seconds"], 3),
        "errors": produced["errors"],
        "first_error": produced["first_error"],
        "wrong": _wrong([read]),
        "read": _added([read]),
        "broker_cpu_seconds": _difference(cpu_before, cpu_after),
        "run": {
            "messages": messages,
            "message_bytes": message_bytes,
            "client": "pulsar-client (Python), one exclusive consumer, cumulative acks",
            "brokers": 1,
        },
    }


async def _make_topics(bench: Bench, *stems: str) -> list[str]:
    names = [f"persistent://{bench.namespace}/{stem}" for stem in stems]
    await bench.create(names)
    return names


async def _produce(
    bench: Bench, kind: str, title: str, topic: str, count: int, message_bytes: int
) -> dict[str, Any]:
    return await bench.run(
        kind,
        title,
        count,
        service_url=f"pulsar://{bench.pulsar}",
        topic=topic,
        count=count,
        message_bytes=message_bytes,
        timeout_s=SETUP_TIMEOUT_MS / 1000,
    )


async def _consume(bench: Bench, title: str, topic: str, count: int) -> dict[str, Any]:
    return await bench.run(
        "consume",
        title,
        count,
        service_url=f"pulsar://{bench.pulsar}",
        topic=topic,
        count=count,
        quiet_ms=QUIET_MS,
    )


async def _messages_in(bench: Bench, topics: Sequence[str]) -> int:
    """Return the brokers' count of stored messages in these topics."""
    return sum([await _counted_at(one, topics) for one in await known_brokers(bench.targets)])


async def _counted_at(broker: KnownBroker, topics: Sequence[str]) -> int:
    channel = open_channel(broker.grpc)
    try:
        response = await BrokerServiceStub(channel).GetTopicStats(
            GetTopicStatsRequest(topics=topics), timeout=STATS_TIMEOUT_MS / 1000
        )
    finally:
        await close_channel(channel)
    return sum(int(topic.messages_in) for topic in response.topics)


def _added(readings: Sequence[dict[str, Any]]) -> dict[str, int]:
    names = ("received", "lost", "duplicated", "out_of_order", "unknown")
    return {name: sum(int(reading[name]) for reading in readings) for name in names}


def _wrong(readings: Sequence[dict[str, Any]]) -> int:
    """Return how many messages were lost, duplicated, out of order, or never sent."""
    added = _added(readings)
    return sum(count for name, count in added.items() if name != "received")


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else round(after - before, 3)
