"""The scalable-topics client against this project's servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pulsar
import pytest

from tests.support.callers.stock_client import PulsarSystem
from tests.support.scalable_client.checks import (
    ARRIVES_MS,
    CHECKS,
    EARLIEST,
    KEYS,
    Check,
    expected,
    nothing_arrives,
    send,
    take,
    until,
)
from tests.support.scalable_client.servers import NotThere, OwnServer


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_client_keeps_its_promises(system: PulsarSystem, check: Check) -> None:
    server = OwnServer(system)
    try:
        await check(server, f"own-{check.__name__}")
    except NotThere as reason:
        pytest.skip(str(reason))


@pytest.fixture
def stock(system: PulsarSystem) -> Iterator[pulsar.Client]:
    # A stock client that has lost a producer to the end of its topic closes with an error.
    with suppress(pulsar.AlreadyClosed), system.client() as opened:
        yield opened


async def test_a_classic_topic_becomes_scalable(system: PulsarSystem, stock: pulsar.Client) -> None:
    """Stock clients before, the scalable ones afterwards: nothing is lost, each key is in order."""
    topic = "persistent://public/default/to-be-migrated"
    migrate = ("scalable-topics", "migrate", topic)
    system.create_topic(topic, partitions=2)
    system.command("policies", "set", topic, "retention.time_ms=0", "retention.size_bytes=0")

    def begin() -> pulsar.Producer:
        orders = stock.subscribe(topic, "orders", pulsar.ConsumerType.Failover)
        jobs = stock.subscribe(topic, "jobs", pulsar.ConsumerType.Shared)
        producer = stock.create_producer(topic)
        for number in range(100):
            producer.send(b"%d" % number, partition_key=f"k{number % KEYS}")
        for _ in range(50):
            jobs.acknowledge(jobs.receive(ARRIVES_MS))
        orders.close()
        jobs.close()
        return producer

    classic = await asyncio.to_thread(begin)
    async with OwnServer(system).client() as client:
        # They follow the topic from one kind to the other, under the name that it had.
        producer = await client.create_producer(topic)
        early = await client.queue_consumer(topic, "early", initial_position=EARLIEST)
        assert sum(map(len, (await take(early, 100)).values())) == 100
        refusal = await asyncio.to_thread(system.refused_command, *migrate)
        assert "has 2 producers and consumers of classic clients" in refusal
        (migrated,) = await asyncio.to_thread(system.command, *migrate, "--force")
        assert (migrated["epoch"], migrated["children"]) == (1, [2, 3])
        with pytest.raises(pulsar.TopicTerminated):
            await asyncio.to_thread(classic.send, b"too late", partition_key="k0")
        await send(producer, 100, 200)

        assert await take(early, 100) == expected(100, 200)

        # What every subscription has acknowledged goes, so the reader is the first.
        async with await client.reader(topic) as reader:
            assert await take(reader, 200) == expected(0, 200)
        name = topic.replace("persistent", "topic")
        async with await client.stream_consumer(name, "orders") as orders:
            assert await take(orders, 100) == expected(0, 100)
            # What follows the partitions comes when all of both is acknowledged.
            assert await take(orders, 100) == expected(100, 200)
        async with await client.queue_consumer(name, "jobs") as jobs:
            assert sum(map(len, (await take(jobs, 150)).values())) == 150
            await nothing_arrives(jobs)
        await until(lambda: not system.has_topic(topic))
        assert len(system.segments_of(name)) == 2
