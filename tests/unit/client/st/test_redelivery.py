"""Queue consumers whose messages come again: after pauses, after time-outs, and not for ever."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from nextgen.client import st
from nextgen.client.st.errors import InvalidSettings, TimedOut
from nextgen.kernel.limits.scalable import ST_DEAD_LETTERS_AT_ONCE_MAX
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.unit.client.st.conftest import TOPIC
from tests.unit.client.st.fake_server import FakeConnection, FakeServer, messages_in

Command = pulsar.BaseCommand
EARLIEST = st.InitialPosition.EARLIEST
LETTERS = f"{TOPIC}-DLQ"


async def send(client: st.PulsarClient, *bodies: bytes) -> None:
    async with await client.create_producer(TOPIC, batching_enabled=False) as producer:
        for body in bodies:
            await producer.send(body, key="k", properties={"a": "b"}, event_time_ms=7)


async def queue(client: st.PulsarClient, **settings: Any) -> st.QueueConsumer[bytes]:
    return await client.queue_consumer(TOPIC, "s", initial_position=EARLIEST, **settings)


async def test_negative_acknowledgements_pause_longer_each_time(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    await send(client, b"x")
    consumer = await queue(client, negative_ack_backoff=st.RedeliveryBackoff(10, 80))
    pauses = []
    for count in range(4):
        message = await consumer.receive(3_000)
        assert message.redelivery_count == count
        began = time.monotonic()
        await consumer.negative_acknowledge(message)
        while not consumer.inbox:
            await asyncio.sleep(0.001)
        pauses.append(time.monotonic() - began)

    for pause, least in zip(pauses, (0.01, 0.02, 0.04, 0.08), strict=True):
        assert pause >= least * 0.9


async def test_what_is_not_acknowledged_in_time_comes_again(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    await send(client, b"0", b"1", b"2")
    consumer = await queue(
        client, ack_timeout_ms=30, ack_timeout_backoff=st.RedeliveryBackoff(10, 10)
    )
    first, second, third = [await consumer.receive(3_000) for _ in range(3)]
    await consumer.acknowledge(first)
    await consumer.acknowledge(third)

    again = await consumer.receive(3_000)

    assert (again.data, again.redelivery_count) == (second.data, 1)
    await consumer.acknowledge(again)
    with pytest.raises(TimedOut):
        await consumer.receive(100)


async def test_a_message_that_came_again_too_often_goes_to_the_dead_letters(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    await send(client, b"bad", b"good")
    consumer = await queue(
        client,
        negative_ack_delay_ms=1,
        dead_letter=st.DeadLetterPolicy(2, initial_subscription="morgue"),
    )
    deliveries = []
    bad: st.MessageId | None = None
    for _ in range(4):
        message = await consumer.receive(3_000)
        deliveries.append(message.data)
        if message.data == b"bad":
            bad = message.message_id
            await consumer.negative_acknowledge(message)
        else:
            await consumer.acknowledge(message)
    assert sorted(deliveries) == [b"bad"] * 3 + [b"good"]

    letters = await client.queue_consumer(LETTERS, "morgue")
    letter = await letters.receive(3_000)
    assert (letter.data, letter.key, letter.event_time_ms) == (b"bad", "k", 7)
    assert letter.properties == {
        "a": "b",
        "REAL_TOPIC": TOPIC,
        "REAL_SUBSCRIPTION": "s",
        "ORIGIN_MESSAGE_ID": str(bad),
    }
    (segment,) = [each for each in server.segments.values() if "-DLQ" not in each.name]
    while segment.subscriptions["s"].acknowledged != {0, 1}:
        await asyncio.sleep(0.005)


async def test_a_dead_letter_that_is_not_stored_is_not_acknowledged(
    server: FakeServer, client: st.PulsarClient
) -> None:
    """The topic of dead letters cannot be made; once it can, the message goes there."""
    server.create(TOPIC)
    await send(client, b"bad")
    refused = 0

    def refuses(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        nonlocal refused
        if command.type == Command.SCALABLE_TOPIC_LOOKUP and refused < 2:
            lookup = command.scalableTopicLookup
            if lookup.topic == "topic://public/default/morgue":
                refused += 1
                connection.send_layout_error(lookup.session_id, pulsar.AuthorizationError)
                return True
        return False

    server.answers = refuses
    policy = st.DeadLetterPolicy(1, topic="topic://public/default/morgue")
    consumer = await queue(client, negative_ack_delay_ms=1, dead_letter=policy)
    for _ in range(2):
        await consumer.negative_acknowledge(await consumer.receive(3_000))
    (segment,) = [each for each in server.segments.values() if "morgue" not in each.name]
    while segment.subscriptions["s"].acknowledged != {0}:
        await asyncio.sleep(0.005)

    assert refused == 2
    assert [body for name, _, body in server.stored() if "morgue" in name] == [b"bad"]


async def test_at_most_ST_DEAD_LETTERS_AT_ONCE_MAX_letters_are_on_their_way(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    count = ST_DEAD_LETTERS_AT_ONCE_MAX + 1
    async with await client.create_producer(TOPIC) as producer:
        for number in range(count):
            await producer.submit(b"%d" % number, key="k")
    (segment,) = server.segments.values()
    consumer = await queue(
        client, negative_ack_delay_ms=1, dead_letter=st.DeadLetterPolicy(1), receiver_queue=count
    )
    for _ in range(2):
        for message in [await consumer.receive(3_000) for _ in range(count)]:
            await consumer.negative_acknowledge(message)
    while len(segment.subscriptions["s"].acknowledged) < len(segment.entries):
        await asyncio.sleep(0.005)

    batches = [
        len(messages_in(payload))
        for each in server.segments.values()
        if "-DLQ" in each.name
        for payload, _ in each.entries
    ]
    assert sum(batches) == count
    assert max(batches) <= ST_DEAD_LETTERS_AT_ONCE_MAX


@pytest.mark.parametrize(
    "settings",
    [
        {"dead_letter": "topic"},
        {"dead_letter": st.DeadLetterPolicy(0)},
        {"dead_letter": st.DeadLetterPolicy(1, topic=3)},  # type: ignore[arg-type]
        {"ack_timeout_ms": -1},
        {"ack_timeout_backoff": st.RedeliveryBackoff(1, 2)},
        {"negative_ack_backoff": 3},
        {"negative_ack_backoff": st.RedeliveryBackoff(-1, 2)},
        {"negative_ack_backoff": st.RedeliveryBackoff(1, 2, multiplier=0.5)},
        {"negative_ack_backoff": st.RedeliveryBackoff(1, 2, multiplier=float("nan"))},
        {"properties": {"a": 1}},
        {"subscription_properties": ["a"]},
    ],
)
async def test_wrong_settings_of_redelivery_are_refused(
    server: FakeServer, client: st.PulsarClient, settings: dict[str, Any]
) -> None:
    with pytest.raises(InvalidSettings):
        await queue(client, **settings)
    assert server.received == []


async def test_what_is_about_single_messages_is_for_queues(
    server: FakeServer, client: st.PulsarClient
) -> None:
    for name, value in (
        ("dead_letter", st.DeadLetterPolicy(1)),
        ("ack_timeout_ms", 1),
        ("negative_ack_delay_ms", 1),
        ("priority_level", 1),
    ):
        with pytest.raises(InvalidSettings, match=f"{name} is not for"):
            await client.stream_consumer(TOPIC, "s", **{name: value})
        with pytest.raises(InvalidSettings, match=f"{name} is not for"):
            await client.reader(TOPIC, **{name: value})
    assert server.received == []


async def test_properties_are_sent(server: FakeServer, client: st.PulsarClient) -> None:
    server.create(TOPIC)
    await queue(client, properties={"p": "1"}, subscription_properties={"q": "2"})
    producer = await client.create_producer(TOPIC, properties={"r": "3"})
    await producer.send(b"x")

    (subscribe,) = [each.subscribe for each in server.received if each.type == Command.SUBSCRIBE]
    (made,) = [each.producer for each in server.received if each.type == Command.PRODUCER]
    assert [(each.key, each.value) for each in subscribe.metadata] == [("p", "1")]
    assert [(each.key, each.value) for each in subscribe.subscription_properties] == [("q", "2")]
    assert [(each.key, each.value) for each in made.metadata] == [("r", "3")]
