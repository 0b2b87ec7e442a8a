"""Partitions, lists and patterns of topics with the stock Python client."""

from __future__ import annotations

import re
from collections import defaultdict

import pulsar
import pytest
from pulsar import InitialPosition, PartitionsRoutingMode

from tests.support.callers.stock_client import (
    PulsarSystem,
    numbered,
    read_all,
    received,
    send_all,
    texts,
)

DISCOVERY_PERIOD_S = 1


def partition_of(message: pulsar.Message) -> str:
    return message.topic_name().rpartition("-partition-")[2]


def test_keys_stay_in_their_partitions(system: PulsarSystem, client: pulsar.Client, topic: str):
    system.create_topic(topic, partitions=4)
    consumer = client.subscribe(topic, "all")
    producer = client.create_producer(topic)

    for number in range(120):
        producer.send(str(number).encode(), partition_key=f"key-{number % 12}")

    by_key = defaultdict(list)
    places = defaultdict(set)
    for message in received(consumer, 120):
        by_key[message.partition_key()].append(int(message.data()))
        places[message.partition_key()].add(partition_of(message))
    assert client.get_topic_partitions(topic) == [f"{topic}-partition-{n}" for n in range(4)]
    assert {len(partitions) for partitions in places.values()} == {1}
    assert len(set.union(*places.values())) >= 3
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_messages_without_keys_go_round_the_partitions(
    system: PulsarSystem, client: pulsar.Client, topic: str
):
    system.create_topic(topic, partitions=3)
    consumer = client.subscribe(topic, "all")
    producer = client.create_producer(
        topic, message_routing_mode=PartitionsRoutingMode.RoundRobinDistribution
    )

    send_all(producer, numbered(30))

    count = defaultdict(int)
    for message in received(consumer, 30):
        count[partition_of(message)] += 1
    assert count == {"0": 10, "1": 10, "2": 10}


def test_a_partition_is_a_topic_of_its_own(system: PulsarSystem, client: pulsar.Client, topic: str):
    system.create_topic(topic, partitions=2)
    one = client.create_producer(f"{topic}-partition-1")

    send_all(one, numbered(5))

    reader = client.create_reader(f"{topic}-partition-1", pulsar.MessageId.earliest)
    assert texts(read_all(reader)) == numbered(5)
    other = client.create_reader(f"{topic}-partition-0", pulsar.MessageId.earliest)
    assert not other.has_message_available()


def test_a_consumer_of_several_topics_gets_them_all(client: pulsar.Client, topic: str):
    names = [f"{topic}-{number}" for number in range(3)]
    consumer = client.subscribe(names, "all")

    for name in names:
        client.create_producer(name).send(name.encode())

    assert sorted(texts(received(consumer, 3))) == names


def test_a_pattern_covers_the_topics_that_there_are(
    system: PulsarSystem, client: pulsar.Client, topic: str
):
    for name in ("one", "other", "apart"):
        client.create_producer(f"{topic}-{name}").send(name.encode())
    system.create_topic(f"{topic}-others", partitions=2)
    client.create_producer(f"{topic}-others").send(b"others")

    consumer = client.subscribe(
        re.compile(f"{topic}-o.*"), "all", initial_position=InitialPosition.Earliest
    )

    assert sorted(texts(received(consumer, 3))) == ["one", "other", "others"]


def test_a_pattern_finds_topics_that_come_later(
    client: pulsar.Client, topic: str, monkeypatch: pytest.MonkeyPatch
):
    # The client takes a period and ignores it (apache/pulsar-client-python issue 171): it is 60 s.
    def configuration() -> pulsar._pulsar.ConsumerConfiguration:
        built = made()
        built.pattern_auto_discovery_period(DISCOVERY_PERIOD_S)
        return built

    made = pulsar._pulsar.ConsumerConfiguration
    monkeypatch.setattr(pulsar._pulsar, "ConsumerConfiguration", configuration)
    client.create_producer(f"{topic}-a").send(b"before")
    consumer = client.subscribe(
        re.compile(f"{topic}-.*"), "all", initial_position=InitialPosition.Earliest
    )
    assert texts(received(consumer, 1)) == ["before"]

    client.create_producer(f"{topic}-b").send(b"after")

    assert texts(received(consumer, 1)) == ["after"]
