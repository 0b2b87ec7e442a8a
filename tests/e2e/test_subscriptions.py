"""Subscription types, acknowledgements and redelivery with the stock Python client."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from datetime import timedelta

import pulsar
import pytest
from pulsar import ConsumerDeadLetterPolicy, ConsumerType, InitialPosition

from tests.support.callers.stock_client import (
    RECEIVE_MS,
    PulsarSystem,
    nothing_arrives,
    numbered,
    received,
    send_all,
    texts,
)

DELAYS_MS = (3_000, 12_000, 25_000)
"""Until a delayed message is due: the first one will do, unless the machine stands still."""

TURN_MS = 2
"""How long one consumer is asked before it is the next one's turn."""


def send_batch(producer: pulsar.Producer, contents: list[str]) -> None:
    for content in contents:
        producer.send_async(content.encode(), lambda *_: None)
    producer.flush()


def batching_producer(client: pulsar.Client, topic: str) -> pulsar.Producer:
    """A producer whose batches are sent by a flush only."""
    return client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=10_000
    )


def shared_out(count: int, *consumers: pulsar.Consumer) -> list[list[pulsar.Message]]:
    """Receive in turns and acknowledge until so many came; return them by consumer."""
    messages: list[list[pulsar.Message]] = [[] for _ in consumers]
    deadline = time.monotonic() + RECEIVE_MS / 1000
    while (missing := count - sum(map(len, messages))) > 0:
        assert time.monotonic() < deadline, f"{missing} of {count} messages did not come"
        for consumer, its_messages in zip(consumers, messages, strict=True):
            with contextlib.suppress(pulsar.Timeout):
                message = consumer.receive(timeout_millis=TURN_MS)
                consumer.acknowledge(message)
                its_messages.append(message)
    return messages


def test_an_exclusive_subscription_has_one_consumer(client: pulsar.Client, topic: str):
    consumer = client.subscribe(topic, "one")

    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "one")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "one", ConsumerType.Shared)
    consumer.close()

    client.subscribe(topic, "one")


def test_each_subscription_gets_every_message(client: pulsar.Client, topic: str):
    consumers = [client.subscribe(topic, name) for name in ("one", "other")]

    send_all(client.create_producer(topic), numbered(20))

    assert [texts(received(consumer, 20)) for consumer in consumers] == [numbered(20)] * 2


def test_consumers_of_a_shared_subscription_divide_the_messages(client: pulsar.Client, topic: str):
    consumers = [
        client.subscribe(topic, "shared", ConsumerType.Shared, receiver_queue_size=10)
        for _ in range(2)
    ]

    send_all(client.create_producer(topic), numbered(200))

    one, other = shared_out(200, *consumers)
    assert min(len(one), len(other)) >= 50
    assert sorted(texts(one + other)) == sorted(numbered(200))


def test_what_a_shared_consumer_did_not_acknowledge_goes_to_the_others(
    client: pulsar.Client, topic: str
):
    leaving = client.subscribe(topic, "shared", ConsumerType.Shared)
    send_all(client.create_producer(topic), numbered(10))
    held = texts(received(leaving, 10, ack=False))
    staying = client.subscribe(topic, "shared", ConsumerType.Shared)

    leaving.close()

    assert sorted(texts(received(staying, 10))) == sorted(held) == sorted(numbered(10))


def test_the_next_consumer_of_a_failover_subscription_takes_over(
    system: PulsarSystem, client: pulsar.Client, topic: str
):
    with system.client() as leaving:
        first = leaving.subscribe(topic, "turns", ConsumerType.Failover, consumer_name="a")
        second = client.subscribe(topic, "turns", ConsumerType.Failover, consumer_name="b")
        producer = client.create_producer(topic)
        send_all(producer, numbered(10))
        assert texts(received(first, 5)) == numbered(5)
        assert nothing_arrives(second)

    send_all(producer, numbered(5, first=10))

    assert texts(received(second, 10)) == numbered(10, first=5)


def test_key_shared_keeps_each_key_in_order_at_one_consumer(client: pulsar.Client, topic: str):
    consumers = [
        client.subscribe(topic, "keys", ConsumerType.KeyShared, receiver_queue_size=10)
        for _ in range(2)
    ]
    producer = client.create_producer(topic)

    for number in range(200):
        producer.send(str(number).encode(), partition_key=f"key-{number % 20}")

    shares = shared_out(200, *consumers)
    keys = [{message.partition_key() for message in share} for share in shares]
    assert keys[0] | keys[1] == {f"key-{number}" for number in range(20)}
    assert not keys[0] & keys[1]
    assert all(keys)
    by_key = defaultdict(list)
    for message in shares[0] + shares[1]:
        by_key[message.partition_key()].append(int(message.data()))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert sum(len(numbers) for numbers in by_key.values()) == 200


def test_key_shared_keeps_the_order_of_keys_when_a_consumer_joins_and_one_leaves(
    client: pulsar.Client, topic: str
):
    first = client.subscribe(topic, "keys", ConsumerType.KeyShared, receiver_queue_size=20)
    producer = client.create_producer(topic)
    order: list[pulsar.Message] = []

    for number in range(100):
        producer.send(str(number).encode(), partition_key=f"key-{number % 10}")
    order += received(first, 30)
    second = client.subscribe(topic, "keys", ConsumerType.KeyShared, receiver_queue_size=20)
    for number in range(100, 200):
        producer.send(str(number).encode(), partition_key=f"key-{number % 10}")
    order += received(first, 20)
    first.close()
    order += received(second, 150)

    by_key = defaultdict(list)
    for message in order:
        by_key[message.partition_key()].append(int(message.data()))
    assert all(numbers == sorted(set(numbers)) for numbers in by_key.values()), by_key
    assert sum(len(numbers) for numbers in by_key.values()) == 200


def test_messages_acknowledged_one_by_one_do_not_return(
    system: PulsarSystem, client: pulsar.Client, topic: str
):
    with system.client() as other:
        consumer = other.subscribe(topic, "some", ConsumerType.Shared)
        send_all(client.create_producer(topic), numbered(10))
        for number, message in enumerate(received(consumer, 10, ack=False)):
            if number % 3 == 0:
                consumer.acknowledge(message)

    again = client.subscribe(topic, "some", ConsumerType.Shared)
    left = [f"message-{number}" for number in range(10) if number % 3]
    assert sorted(texts(received(again, 6))) == sorted(left)
    assert nothing_arrives(again)


def test_a_cumulative_acknowledgement_covers_all_before(
    system: PulsarSystem, client: pulsar.Client, topic: str
):
    with system.client() as other:
        consumer = other.subscribe(topic, "some")
        send_all(client.create_producer(topic), numbered(10))
        consumer.acknowledge_cumulative(received(consumer, 7, ack=False)[-1])

    assert texts(received(client.subscribe(topic, "some"), 3)) == numbered(3, first=7)


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared])
def test_parts_of_a_batch_that_were_acknowledged_do_not_return(
    system: PulsarSystem, client: pulsar.Client, topic: str, kind: ConsumerType
):
    with system.client() as other:
        consumer = other.subscribe(topic, "parts", kind, batch_index_ack_enabled=True)
        send_batch(batching_producer(client, topic), numbered(10))
        messages = received(consumer, 10, ack=False)
        for number in (0, 3, 9):
            consumer.acknowledge(messages[number])

    again = client.subscribe(topic, "parts", kind, batch_index_ack_enabled=True)
    left = [f"message-{number}" for number in range(10) if number not in (0, 3, 9)]
    assert texts(received(again, 7)) == left
    assert nothing_arrives(again)


def test_a_cumulative_acknowledgement_may_end_within_a_batch(
    system: PulsarSystem, client: pulsar.Client, topic: str
):
    with system.client() as other:
        consumer = other.subscribe(topic, "parts", batch_index_ack_enabled=True)
        producer = batching_producer(client, topic)
        send_batch(producer, numbered(10))
        send_batch(producer, numbered(10, first=10))
        consumer.acknowledge_cumulative(received(consumer, 14, ack=False)[-1])

    again = client.subscribe(topic, "parts", batch_index_ack_enabled=True)
    assert texts(received(again, 6)) == numbered(6, first=14)
    assert nothing_arrives(again)


def test_a_batch_that_was_acknowledged_in_part_returns_whole_without_batch_index(
    system: PulsarSystem, client: pulsar.Client, topic: str
):
    with system.client() as other:
        consumer = other.subscribe(topic, "parts")
        send_batch(batching_producer(client, topic), numbered(10))
        received(consumer, 4)

    assert texts(received(client.subscribe(topic, "parts"), 10)) == numbered(10)


def test_negative_acknowledgements_bring_messages_back_and_are_counted(
    client: pulsar.Client, topic: str
):
    consumer = client.subscribe(
        topic, "again", ConsumerType.Shared, negative_ack_redelivery_delay_ms=100
    )
    send_all(client.create_producer(topic), numbered(5))
    counts: dict[str, list[int]] = defaultdict(list)

    for _ in range(15):
        (message,) = received(consumer, 1, ack=False)
        counts[message.data().decode()].append(message.redelivery_count())
        if message.redelivery_count() < 2:
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)

    assert counts == {name: [0, 1, 2] for name in numbered(5)}
    assert nothing_arrives(consumer)


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared])
def test_what_was_not_acknowledged_is_delivered_again_on_request(
    client: pulsar.Client, topic: str, kind: ConsumerType
):
    consumer = client.subscribe(topic, "again", kind)
    send_all(client.create_producer(topic), numbered(10))
    # All of them: one that is still on its way when the client asks would come twice.
    received(consumer, 10, ack=False)

    consumer.redeliver_unacknowledged_messages()

    assert Counter(texts(received(consumer, 10))) == Counter(numbered(10))
    assert nothing_arrives(consumer)


def test_messages_that_nobody_acknowledges_end_at_the_dead_letter_topic(
    client: pulsar.Client, topic: str
):
    policy = ConsumerDeadLetterPolicy(2, f"{topic}-dead", initial_subscription_name="dead")
    consumer = client.subscribe(
        topic,
        "again",
        ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=policy,
    )
    send_all(client.create_producer(topic), ["good", "bad"])

    seen: Counter[str] = Counter()
    for _ in range(4):
        (message,) = received(consumer, 1, ack=False)
        seen[message.data().decode()] += 1
        if message.data() == b"good":
            consumer.acknowledge(message)
        else:
            consumer.negative_acknowledge(message)

    assert seen == {"good": 1, "bad": 3}
    dead = client.subscribe(
        f"{topic}-dead", "dead", ConsumerType.Shared, initial_position=InitialPosition.Earliest
    )
    # The client publishes there by itself, some time after the last negative acknowledgement.
    assert texts(received(dead, 1)) == ["bad"]
    assert nothing_arrives(consumer)


def test_delayed_messages_come_when_they_are_due(client: pulsar.Client, topic: str):
    """What was sent later and is due at once comes before what is due later: if there is time for
    it until then, and else it is tried again with more."""
    consumer = client.subscribe(topic, "later", ConsumerType.Shared)
    producer = client.create_producer(topic)
    producer.send(b"last", deliver_after=timedelta(hours=1))

    for delay_ms in DELAYS_MS:
        due_ms = int(time.time() * 1000) + delay_ms
        producer.send(b"second", deliver_at=due_ms)
        producer.send(b"first")
        came_ms = {}
        for _ in range(2):
            (text,) = texts(received(consumer, 1))
            came_ms[text] = int(time.time() * 1000)
        assert set(came_ms) == {"first", "second"}
        assert came_ms["second"] >= due_ms
        if came_ms["first"] < due_ms:
            break

    assert list(came_ms) == ["first", "second"]
    assert nothing_arrives(consumer)


def test_an_exclusive_consumer_gets_delayed_messages_at_once(client: pulsar.Client, topic: str):
    consumer = client.subscribe(topic, "now")

    client.create_producer(topic).send(b"later", deliver_after=timedelta(minutes=10))

    assert texts(received(consumer, 1)) == ["later"]


def test_a_subscription_that_was_given_up_starts_anew(client: pulsar.Client, topic: str):
    consumer = client.subscribe(topic, "given-up", initial_position=InitialPosition.Earliest)
    producer = client.create_producer(topic)
    send_all(producer, numbered(5))
    received(consumer, 2)

    consumer.unsubscribe()

    anew = client.subscribe(topic, "given-up")
    producer.send(b"later")
    assert texts(received(anew, 1)) == ["later"]


def test_a_subscription_with_another_consumer_is_not_given_up(client: pulsar.Client, topic: str):
    leaving, staying = (client.subscribe(topic, "shared", ConsumerType.Shared) for _ in range(2))

    with pytest.raises(pulsar.PulsarException):
        leaving.unsubscribe()

    leaving.close()
    client.create_producer(topic).send(b"still here")
    assert texts(received(staying, 1)) == ["still here"]


def test_a_slow_consumer_gets_no_more_than_it_asked_for(client: pulsar.Client, topic: str):
    slow = client.subscribe(topic, "shared", ConsumerType.Shared, receiver_queue_size=5)
    quick = client.subscribe(topic, "shared", ConsumerType.Shared, receiver_queue_size=100)

    send_all(client.create_producer(topic), numbered(100))
    (rest,) = shared_out(95, quick)

    held = received(slow, 5)
    assert nothing_arrives(quick)
    assert sorted(texts(rest + held)) == sorted(numbered(100))
