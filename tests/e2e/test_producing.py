"""Producing with the stock Python client: what is sent is what is received."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pulsar
import pytest
from pulsar import CompressionType, InitialPosition, ProducerAccessMode

from tests.support.callers.stock_client import (
    PulsarSystem,
    nothing_arrives,
    numbered,
    read_all,
    received,
    send_all,
    texts,
)

CHUNKED_BYTES = 12 * 1024 * 1024
"""More than two frames of the largest size."""


def test_a_topic_comes_to_be_by_producing_and_its_messages_arrive_in_order(
    system: PulsarSystem, client: pulsar.Client, topic: str
):
    consumer = client.subscribe(topic, "all")

    ids = send_all(client.create_producer(topic), numbered(100))

    messages = received(consumer, 100)
    assert texts(messages) == numbered(100)
    assert [str(message.message_id()) for message in messages] == [str(one) for one in ids]
    assert topic in system.topics_of("public/default")


def test_a_topic_comes_to_be_by_subscribing(
    system: PulsarSystem, client: pulsar.Client, topic: str
):
    client.subscribe(topic, "all")

    assert topic in system.topics_of("public/default")


def test_a_namespace_that_forbids_creation_has_only_topics_that_were_created(
    system: PulsarSystem, client: pulsar.Client
):
    system.create_namespace("e2e/closed", {"allowAutoTopicCreation": "false"})
    system.create_topic("persistent://e2e/closed/made")

    for refused in (client.create_producer, lambda name: client.subscribe(name, "all")):
        with pytest.raises(pulsar.TopicNotFound):
            refused("persistent://e2e/closed/absent")

    consumer = client.subscribe("persistent://e2e/closed/made", "all")
    client.create_producer("persistent://e2e/closed/made").send(b"there")
    assert texts(received(consumer, 1)) == ["there"]
    assert system.topics_of("e2e/closed") == ["persistent://e2e/closed/made"]


def test_a_namespace_may_say_that_topics_come_to_be_partitioned(
    system: PulsarSystem, client: pulsar.Client
):
    properties = {"autoTopicCreationType": "partitioned", "defaultNumPartitions": "3"}
    system.create_namespace("e2e/partitioned", properties)

    assert client.get_topic_partitions("persistent://e2e/partitioned/new") == [
        f"persistent://e2e/partitioned/new-partition-{number}" for number in range(3)
    ]


def test_a_topic_of_a_namespace_that_is_absent_is_not_found(client: pulsar.Client):
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer("persistent://nobody/nowhere/anything")


def test_the_messages_of_a_batch_arrive_one_by_one(client: pulsar.Client, topic: str):
    consumer = client.subscribe(topic, "all")
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=50, batching_max_publish_delay_ms=60_000
    )

    for content in numbered(100):
        producer.send_async(content.encode(), lambda *_: None)
    producer.flush()

    messages = received(consumer, 100)
    assert texts(messages) == numbered(100)
    places = [re.findall(r"-?\d+", str(message.message_id())) for message in messages]
    assert len({(ledger, entry) for ledger, entry, *_ in places}) == 2
    assert [int(place[3]) for place in places] == [*range(50), *range(50)]


@pytest.mark.parametrize("kind", ["LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_compressed_messages_arrive_as_they_were(client: pulsar.Client, topic: str, kind: str):
    consumer = client.subscribe(topic, "all")
    producer = client.create_producer(
        topic, compression_type=getattr(CompressionType, kind), batching_enabled=True
    )
    content = b"again and again " * 5_000

    producer.send(content)

    assert received(consumer, 1)[0].data() == content


def test_a_message_larger_than_a_frame_arrives_whole(client: pulsar.Client, topic: str):
    consumer = client.subscribe(topic, "all")
    producer = client.create_producer(topic, chunking_enabled=True)
    content = os.urandom(CHUNKED_BYTES)

    producer.send(b"before")
    producer.send(content)
    producer.send(b"after")

    messages = received(consumer, 3)
    assert [message.data() for message in messages] == [b"before", content, b"after"]


def test_a_message_that_is_too_large_is_refused_and_the_producer_goes_on(
    client: pulsar.Client, topic: str
):
    consumer = client.subscribe(topic, "all")
    producer = client.create_producer(topic)

    with pytest.raises(pulsar.MessageTooBig):
        producer.send(bytes(6 * 1024 * 1024))
    producer.send(b"small")

    assert texts(received(consumer, 1)) == ["small"]


@pytest.mark.parametrize("batching", [True, False])
def test_what_a_message_carries_arrives_with_it(client: pulsar.Client, topic: str, batching: bool):
    consumer = client.subscribe(topic, "all")
    producer = client.create_producer(
        topic,
        producer_name=f"teller-{batching}",
        batching_enabled=batching,
        properties={"of": "producer"},
    )

    producer.send(
        b"\x00\xff",
        properties={"colour": "green", "empty": ""},
        partition_key="key",
        ordering_key="order",
        event_timestamp=1_234_567,
    )

    (message,) = received(consumer, 1)
    assert message.data() == b"\x00\xff"
    assert message.properties() == {"colour": "green", "empty": ""}
    assert message.partition_key() == "key"
    assert message.ordering_key() == "order"
    assert message.event_timestamp() == 1_234_567
    assert message.producer_name() == f"teller-{batching}"
    assert message.topic_name() == topic
    assert message.redelivery_count() == 0


def test_an_empty_message_arrives(client: pulsar.Client, topic: str):
    consumer = client.subscribe(topic, "all")

    client.create_producer(topic).send(b"")

    assert received(consumer, 1)[0].data() == b""


def test_what_a_named_producer_sends_again_is_stored_once(client: pulsar.Client, topic: str):
    first = client.create_producer(topic, producer_name="teller")
    send_all(first, numbered(10))
    assert first.last_sequence_id() == 9
    first.close()

    again = client.create_producer(topic, producer_name="teller")
    assert again.last_sequence_id() == 9
    for sequence_id in (5, 9, 10, 11, 10):
        again.send(f"message-{sequence_id}".encode(), sequence_id=sequence_id)

    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert texts(read_all(reader)) == numbered(12)


def test_a_named_producer_goes_on_after_its_client_was_restarted(system: PulsarSystem, topic: str):
    for first in (0, 10, 20):
        with system.client() as client:
            producer = client.create_producer(topic, producer_name="teller")
            assert producer.last_sequence_id() == first - 1
            send_all(producer, numbered(10, first=first))

    with system.client() as client:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        assert texts(read_all(reader)) == numbered(30)


def test_two_producers_of_one_name_are_not_let_in(client: pulsar.Client, topic: str):
    client.create_producer(topic, producer_name="teller")

    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="teller")


def test_an_exclusive_producer_keeps_others_out_until_it_leaves(client: pulsar.Client, topic: str):
    exclusive = client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)

    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic)
    exclusive.send(b"alone")
    exclusive.close()

    client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive).send(b"next")


def test_an_exclusive_producer_is_not_let_in_beside_a_shared_one(client: pulsar.Client, topic: str):
    client.create_producer(topic)

    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)


def test_a_producer_that_waits_gets_its_turn(system: PulsarSystem, topic: str):
    with system.client() as client, system.client() as patient, ThreadPoolExecutor(1) as pool:
        first = client.create_producer(topic, access_mode=ProducerAccessMode.WaitForExclusive)
        waiting = pool.submit(
            patient.create_producer, topic, access_mode=ProducerAccessMode.WaitForExclusive
        )
        consumer = client.subscribe(topic, "all", initial_position=InitialPosition.Earliest)
        send_all(first, numbered(20))
        assert not waiting.done()

        first.close()
        waiting.result(timeout=30).send(b"mine")

        assert texts(received(consumer, 21)) == [*numbered(20), "mine"]


def test_a_producer_that_fences_ends_the_one_before(system: PulsarSystem, topic: str):
    with system.client() as client, system.client() as newer:
        first = client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
        first.send(b"first")

        second = newer.create_producer(topic, access_mode=ProducerAccessMode.ExclusiveWithFencing)
        second.send(b"second")

        with pytest.raises((pulsar.ProducerFenced, pulsar.AlreadyClosed)):
            first.send(b"too late")
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        assert texts(read_all(reader)) == ["first", "second"]


def test_a_non_persistent_topic_passes_messages_on_and_keeps_none(
    client: pulsar.Client, topic: str
):
    name = topic.replace("persistent://", "non-persistent://")
    producer = client.create_producer(name)
    producer.send(b"nobody is there")
    consumers = [client.subscribe(name, subscription) for subscription in ("one", "other")]

    producer.send(b"both are there")

    for consumer in consumers:
        assert texts(received(consumer, 1)) == ["both are there"]
        assert nothing_arrives(consumer)
