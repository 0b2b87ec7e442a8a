"""What a stock client may be given as service URL, and its asyncio form."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator

import pulsar
import pulsar.asyncio
import pytest
from pulsar import InitialPosition

from nextgen.tasks.timeouts import timeout
from tests.support.callers.stock_client import (
    PulsarSystem,
    numbered,
    received,
    send_all,
    texts,
)


@pytest.fixture
def dead_address() -> Iterator[str]:
    """An address that refuses connections; its port is held, so that nothing can listen on it."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


def produce_and_consume(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "all", initial_position=InitialPosition.Earliest)
    send_all(client.create_producer(topic), numbered(10))
    assert texts(received(consumer, 10)) == numbered(10)


def test_topics_are_looked_up_over_http(system: PulsarSystem, topic: str):
    with system.client(system.http_url) as client:
        produce_and_consume(client, topic)


def test_partitions_are_looked_up_over_http(system: PulsarSystem, topic: str):
    system.create_topic(topic, partitions=3)

    with system.client(system.http_url) as client:
        assert len(client.get_topic_partitions(topic)) == 3
        produce_and_consume(client, f"{topic}-partition-0")


def test_one_of_several_addresses_may_be_dead(system: PulsarSystem, topic: str, dead_address: str):
    alive = system.service_url.removeprefix("pulsar://")

    with system.client(f"pulsar://{dead_address},{alive}") as client:
        produce_and_consume(client, topic)


def test_a_client_fails_over_from_a_dead_address(
    system: PulsarSystem, topic: str, dead_address: str
):
    failover = pulsar.AutoClusterFailover(
        pulsar.ServiceInfo(f"pulsar://{dead_address}"),
        [pulsar.ServiceInfo(system.service_url)],
        check_interval_ms=100,
        failover_threshold=1,
    )

    client = pulsar.Client(failover, logger=system.client_logger())
    try:
        # The first address has to be found dead before anything can be asked of the second.
        while client.get_service_info().service_url != system.service_url:
            time.sleep(0.01)
        produce_and_consume(client, topic)
    finally:
        client.close()


def test_a_broker_answers_lookups_as_well(system: PulsarSystem, topic: str):
    for number, address in enumerate(system.broker_addresses.values()):
        with system.client(f"pulsar://{address}") as client:
            produce_and_consume(client, f"{topic}-{number}")


def test_names_with_unusual_characters(system: PulsarSystem, topic: str):
    for url in (system.service_url, system.http_url):
        with system.client(url) as client:
            kind = url.partition(":")[0]
            produce_and_consume(client, f"{topic} a=b+c@d#é:{kind}")


def test_an_invalid_name_is_refused(client: pulsar.Client):
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("persistent://public/default/")


async def test_the_asyncio_client_produces_and_consumes(system: PulsarSystem, topic: str):
    client = pulsar.asyncio.Client(system.service_url)
    try:
        consumer = await client.subscribe(topic, "all")
        producer = await client.create_producer(topic)
        await asyncio.gather(*(producer.send(content.encode()) for content in numbered(100)))
        async with timeout(30):
            messages = [await consumer.receive() for _ in range(100)]
        for message in messages:
            await consumer.acknowledge(message)
        assert texts(messages) == numbered(100)
        await consumer.seek(pulsar.MessageId.wrap(messages[41].message_id()))
        async with timeout(30):
            assert (await consumer.receive()).data() == b"message-42"
    finally:
        await client.close()
