"""Where reading starts and goes on: cursors, readers, seeks, table views."""

from __future__ import annotations

import time

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition, MessageId
from pulsar.schema import StringSchema

from tests.support.callers.stock_client import (
    RECEIVE_MS,
    PulsarSystem,
    nothing_arrives,
    numbered,
    read,
    read_all,
    received,
    send_all,
    texts,
)


def filled(client: pulsar.Client, topic: str, count: int = 20) -> list[MessageId]:
    """Have a topic with so many messages; return their ids."""
    return send_all(client.create_producer(topic), numbered(count))


def test_a_subscription_begins_at_its_initial_position(client: pulsar.Client, topic: str):
    filled(client, topic)

    latest = client.subscribe(topic, "latest")
    earliest = client.subscribe(topic, "earliest", initial_position=InitialPosition.Earliest)

    assert texts(received(earliest, 20)) == numbered(20)
    assert nothing_arrives(latest)


def test_a_subscription_goes_on_where_its_last_client_stopped(system: PulsarSystem, topic: str):
    with system.client() as client:
        client.subscribe(topic, "kept")
        filled(client, topic)
    for first in (0, 5, 10):
        with system.client() as client:
            assert texts(received(client.subscribe(topic, "kept"), 5)) == numbered(5, first=first)


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared])
def test_seeking_to_the_ends(client: pulsar.Client, topic: str, kind: ConsumerType):
    consumer = client.subscribe(topic, "seeking", kind)
    ids = filled(client, topic)
    received(consumer, 20)

    consumer.seek(MessageId.earliest)
    assert texts(received(consumer, 20)) == numbered(20)

    consumer.seek(MessageId.earliest)
    consumer.seek(MessageId.latest)
    assert nothing_arrives(consumer)
    client.create_producer(topic).send(b"next")
    assert texts(received(consumer, 1)) == ["next"]
    assert len(set(map(str, ids))) == 20


@pytest.mark.parametrize("inclusive", [True, False])
def test_seeking_to_a_message(client: pulsar.Client, topic: str, inclusive: bool):
    consumer = client.subscribe(topic, "seeking", start_message_id_inclusive=inclusive)
    ids = filled(client, topic)
    received(consumer, 20)

    consumer.seek(ids[8])

    first = 8 if inclusive else 9
    assert texts(received(consumer, 20 - first)) == numbered(20 - first, first=first)


def test_a_seek_outlives_the_client(system: PulsarSystem, topic: str):
    with system.client() as client:
        consumer = client.subscribe(topic, "seeking")
        ids = filled(client, topic)
        received(consumer, 20)
        consumer.seek(ids[8])

    with system.client() as client:
        consumer = client.subscribe(topic, "seeking")
        assert texts(received(consumer, 12)) == numbered(12, first=8)


def test_seeking_to_a_time(client: pulsar.Client, topic: str):
    consumer = client.subscribe(topic, "seeking")
    producer = client.create_producer(topic)
    send_all(producer, numbered(10))
    # Publish times are milliseconds: the next message has a later one.
    before = int(time.time() * 1000) + 1
    while int(time.time() * 1000) <= before:
        time.sleep(0.001)
    send_all(producer, numbered(10, first=10))
    received(consumer, 20)

    consumer.seek(before)
    assert texts(received(consumer, 10)) == numbered(10, first=10)

    consumer.seek(1)
    assert texts(received(consumer, 20)) == numbered(20)

    consumer.seek(int(time.time() * 1000) + 60_000)
    assert nothing_arrives(consumer)


def test_a_reader_begins_at_either_end(client: pulsar.Client, topic: str):
    producer = client.create_producer(topic)
    send_all(producer, numbered(10))

    earliest = client.create_reader(topic, MessageId.earliest)
    latest = client.create_reader(topic, MessageId.latest)

    assert texts(read_all(earliest)) == numbered(10)
    assert not latest.has_message_available()
    send_all(producer, numbered(1, first=10))
    assert latest.has_message_available()
    assert texts(read(latest, 1)) == numbered(1, first=10)
    assert texts(read(earliest, 1)) == numbered(1, first=10)


@pytest.mark.parametrize("inclusive", [True, False])
def test_a_reader_begins_at_a_message(client: pulsar.Client, topic: str, inclusive: bool):
    ids = filled(client, topic)

    reader = client.create_reader(topic, ids[4], start_message_id_inclusive=inclusive)

    first = 4 if inclusive else 5
    assert texts(read_all(reader)) == numbered(20 - first, first=first)


def test_a_reader_may_begin_within_a_batch(client: pulsar.Client, topic: str):
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=10_000
    )
    for content in numbered(10):
        producer.send_async(content.encode(), lambda *_: None)
    producer.flush()
    everything = read_all(client.create_reader(topic, MessageId.earliest))

    reader = client.create_reader(topic, everything[3].message_id())

    assert texts(read_all(reader)) == numbered(6, first=4)


def test_a_reader_seeks(client: pulsar.Client, topic: str):
    ids = filled(client, topic)
    reader = client.create_reader(topic, MessageId.latest)

    reader.seek(ids[10])
    assert texts(read_all(reader)) == numbered(9, first=11)

    reader.seek(MessageId.earliest)
    assert texts(read_all(reader)) == numbered(20)


def test_readers_take_nothing_from_each_other(client: pulsar.Client, topic: str):
    filled(client, topic)

    readers = [client.create_reader(topic, MessageId.earliest) for _ in range(3)]

    assert [texts(read_all(reader)) for reader in readers] == [numbered(20)] * 3


def test_a_reader_leaves_nothing_behind(client: pulsar.Client, topic: str):
    filled(client, topic)
    for _ in range(2):
        reader = client.create_reader(topic, MessageId.earliest, reader_name="same")
        assert texts(read(reader, 5)) == numbered(5)
        reader.close()


def test_the_last_message_is_known(client: pulsar.Client, topic: str):
    consumer = client.subscribe(topic, "all")
    producer = client.create_producer(topic)
    assert not client.create_reader(topic, MessageId.earliest).has_message_available()

    ids = send_all(producer, numbered(3))

    assert str(consumer.get_last_message_id()) == str(ids[-1])


def test_a_table_view_has_the_last_value_of_each_key(client: pulsar.Client, topic: str):
    producer = client.create_producer(topic, schema=StringSchema())
    for number in range(10):
        producer.send(str(number), partition_key=f"key-{number % 3}")

    view = client.create_table_view(topic, schema=StringSchema())
    changes: list[tuple[str, str]] = []
    view.for_each_and_listen(lambda key, value: changes.append((key, value)))

    assert {key: view.get(key) for key in ("key-0", "key-1", "key-2")} == {
        "key-0": "9",
        "key-1": "7",
        "key-2": "8",
    }
    assert len(view) == 3
    producer.send("new", partition_key="key-1")
    deadline = time.monotonic() + RECEIVE_MS / 1000
    while ("key-1", "new") not in changes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert changes[-1] == ("key-1", "new")
    assert view.get("key-1") == "new"
    view.close()
