"""Messages that are larger than an entry, over lost connections and splits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nextgen.client import st
from nextgen.client.st.consuming.receiving import Receiving
from nextgen.client.st.domain import chunks
from nextgen.client.st.errors import InvalidSettings, MessageTooLarge, NotSupported, TimedOut
from nextgen.client.st.producing.settings import ENTRY_PAYLOAD_BYTES_MAX
from nextgen.kernel.limits.scalable import (
    ST_CHUNKED_MESSAGE_BYTES_MAX,
    ST_CHUNKS_PER_MESSAGE_MAX,
)
from nextgen.pulsar.payload import message_payload, open_payload
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.unit.client.st.conftest import TOPIC
from tests.unit.client.st.fake_server import FakeConnection, FakeServer

Command = pulsar.BaseCommand
EARLIEST = st.InitialPosition.EARLIEST
LARGE = bytes(range(256)) * 10
"""Of ten chunks."""


async def chunking(client: st.PulsarClient, **settings: Any) -> st.Producer[bytes]:
    return await client.create_producer(TOPIC, chunking_enabled=True, chunk_bytes=256, **settings)


async def consumers(client: st.PulsarClient) -> list[Receiving[bytes]]:
    return [
        await client.queue_consumer(TOPIC, "q", initial_position=EARLIEST, receiver_queue=4),
        await client.stream_consumer(TOPIC, "s", initial_position=EARLIEST, receiver_queue=4),
        await client.reader(TOPIC, receiver_queue=4),
    ]


async def acknowledge(consumer: Any, message: st.Message[bytes]) -> None:
    if isinstance(consumer, st.QueueConsumer):
        await consumer.acknowledge(message)
    elif isinstance(consumer, st.StreamConsumer):
        await consumer.acknowledge_cumulative(message)


async def everything_acknowledged(server: FakeServer) -> None:
    """Wait until nothing of what is stored would come again."""
    async with timeout(3):
        while any(
            subscription.acknowledged != set(range(len(segment.entries)))
            for segment in server.segments.values()
            for subscription in segment.subscriptions.values()
        ):
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("compression", [st.Compression.NONE, st.Compression.ZSTD])
async def test_large_messages_are_stored_in_chunks_and_come_whole(
    server: FakeServer, client: st.PulsarClient, compression: st.Compression
) -> None:
    server.create(TOPIC)
    bodies = [b"small", LARGE, b"x" * 256, LARGE[::-1], b"last"]
    producer = await chunking(client, compression=compression)
    ids = [await producer.submit(body, key="k", properties={"a": "b"}) for body in bodies]
    last_ids = [await each for each in ids]

    for consumer in await consumers(client):
        for body, stored in zip(bodies, last_ids, strict=True):
            message = await consumer.receive(3_000)
            assert (message.data, message.key, message.properties) == (body, "k", {"a": "b"})
            assert message.message_id.position.entry == stored.position.entry
            await acknowledge(consumer, message)
    if compression is st.Compression.NONE:
        (segment,) = server.segments.values()
        found = [open_payload(payload)[0] for payload, _ in segment.entries]
        assert [each.chunk_id for each in found if each.uuid] == 2 * list(range(10))
    await everything_acknowledged(server)


async def test_a_negatively_acknowledged_one_comes_again_whole(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    await (await chunking(client)).send(LARGE)
    consumer = await client.queue_consumer(
        TOPIC, "q", initial_position=EARLIEST, negative_ack_delay_ms=1
    )
    await consumer.negative_acknowledge(await consumer.receive(3_000))

    again = await consumer.receive(3_000)

    assert (again.data, again.redelivery_count) == (LARGE, 1)
    await consumer.acknowledge(again)
    await everything_acknowledged(server)


@pytest.mark.parametrize("before_loss", [1, 5, 9])
async def test_connections_of_both_sides_may_end_in_the_middle(
    server: FakeServer, client: st.PulsarClient, before_loss: int
) -> None:
    """1. The connection ends after some chunks. 2. The producer sends the message again. 3. The
    consumer's connection ends after some of them, too: it gets the message once."""
    server.create(TOPIC)
    seen = 0

    def ends(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        nonlocal seen
        if command.type != Command.SEND:
            return False
        seen += 1
        if seen == before_loss + 1:
            connection.abort()
        # What is behind it on the same connection is lost.
        return before_loss < seen <= 10

    server.answers = ends
    await (await chunking(client)).send(LARGE)
    assert seen > 10

    consumer = await client.queue_consumer(TOPIC, "q", initial_position=EARLIEST, receiver_queue=4)
    for each in list(server.connections):
        each.abort()
    message = await consumer.receive(3_000)
    assert message.data == LARGE
    await consumer.acknowledge(message)
    with pytest.raises(TimedOut):
        await consumer.receive(50)


async def test_over_a_split_the_message_goes_whole_to_a_child_and_its_rest_is_given_up(
    server: FakeServer, client: st.PulsarClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunks in the parent have no end. A stream gets the child when they count as given up."""
    monkeypatch.setattr(chunks, "ST_CHUNKS_INCOMPLETE_MS", 50)
    topic = server.create(TOPIC)
    seen = 0

    def splits(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        nonlocal seen
        seen += command.type == Command.SEND
        if command.type == Command.SEND and seen == 4:
            server.split(topic, 0)
        return False

    server.answers = splits
    producer = await chunking(client)
    await producer.send(LARGE, key="k")
    parent, *children = server.segments.values()
    assert len(parent.entries) == 3
    assert sorted(len(each.entries) for each in children) == [0, 10]

    for consumer in await consumers(client):
        message = await consumer.receive(3_000)
        assert message.data == LARGE
        await acknowledge(consumer, message)
    await everything_acknowledged(server)


@pytest.mark.parametrize("sends_start_entry", [False, True])
async def test_reading_goes_on_behind_a_message_in_chunks_that_was_the_last_one(
    server: FakeServer, client: st.PulsarClient, sends_start_entry: bool
) -> None:
    server.sends_start_entry = sends_start_entry
    topic = server.create(TOPIC)
    producer = await chunking(client)
    await producer.send(LARGE, key="k")
    reader = await client.reader(TOPIC)
    await reader.receive(3_000)
    checkpoint = reader.checkpoint()
    server.split(topic, 0)
    await producer.send(LARGE[::-1], key="k")

    later = await client.checkpoint_consumer(TOPIC, checkpoint=checkpoint)

    assert (await later.receive(3_000)).data == LARGE[::-1]
    assert not await later.has_message_available()


async def test_a_cumulative_acknowledgement_leaves_a_message_that_is_not_complete(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    (segment,) = server.segments.values()
    metadata = pulsar.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    whole = message_payload(metadata, b"whole")
    metadata.uuid, metadata.num_chunks_from_msg, metadata.total_chunk_msg_size = "p-1", 2, 2
    parts = []
    for number in range(2):
        metadata.chunk_id = number
        parts.append(message_payload(metadata, b"%d" % number))
    segment.entries += [(whole, 1), (parts[0], 1), (whole, 1)]
    consumer = await client.stream_consumer(TOPIC, "s", initial_position=EARLIEST)
    for _ in range(2):
        await consumer.acknowledge_cumulative(await consumer.receive(3_000))
    await asyncio.sleep(0.02)
    assert segment.subscriptions["s"].acknowledged == {0}

    segment.entries.append((parts[1], 1))
    server.dispatch(segment, segment.subscriptions["s"])
    last = await consumer.receive(3_000)
    assert last.data == b"01"
    await consumer.acknowledge_cumulative(last)
    await everything_acknowledged(server)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"num_chunks_from_msg": ST_CHUNKS_PER_MESSAGE_MAX + 1}, "chunks"),
        ({"total_chunk_msg_size": ST_CHUNKED_MESSAGE_BYTES_MAX + 1}, "bytes"),
        ({"uncompressed_size": ST_CHUNKED_MESSAGE_BYTES_MAX + 1}, "bytes"),
    ],
)
async def test_messages_above_the_limits_of_a_consumer_are_an_error_and_stay(
    server: FakeServer, client: st.PulsarClient, fields: dict[str, int], reason: str
) -> None:
    """At ST_CHUNKS_PER_MESSAGE_MAX and ST_CHUNKED_MESSAGE_BYTES_MAX they are taken."""
    server.create(TOPIC)
    (segment,) = server.segments.values()
    metadata = pulsar.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.uuid, metadata.num_chunks_from_msg = "p-1", ST_CHUNKS_PER_MESSAGE_MAX
    metadata.total_chunk_msg_size = ST_CHUNKED_MESSAGE_BYTES_MAX
    segment.entries.append((message_payload(metadata, b"?"), 1))
    for name, value in fields.items():
        setattr(metadata, name, value)
    segment.entries.append((message_payload(metadata, b"?"), 1))
    consumer = await client.queue_consumer(TOPIC, "q", initial_position=EARLIEST)

    with pytest.raises(NotSupported, match=reason):
        await consumer.receive(3_000)
    (segment_consumer,) = consumer.segments.values()
    assert segment_consumer._chunks.first_entry == (1, 0)
    assert segment.subscriptions["q"].acknowledged == set()


@pytest.mark.parametrize("fields", [{"uuid": ""}, {"chunk_id": 2}, {"chunk_id": -1}])
async def test_a_chunk_without_place_is_reported_and_left_out(
    server: FakeServer, client: st.PulsarClient, fields: dict[str, Any]
) -> None:
    server.create(TOPIC)
    (segment,) = server.segments.values()
    metadata = pulsar.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.uuid, metadata.num_chunks_from_msg = "p-1", 2
    for name, value in fields.items():
        setattr(metadata, name, value)
    segment.entries.append((message_payload(metadata, b"?"), 1))
    consumer = await client.queue_consumer(TOPIC, "q", initial_position=EARLIEST)

    await everything_acknowledged(server)
    assert consumer.receive_nowait() is None


async def test_a_payload_has_at_most_ST_CHUNKED_MESSAGE_BYTES_MAX_and_ST_CHUNKS_PER_MESSAGE_MAX(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    large = await client.create_producer(TOPIC, chunking_enabled=True)
    small = await client.create_producer(TOPIC, chunking_enabled=True, chunk_bytes=1)
    without = await client.create_producer(TOPIC)
    for producer, most in (
        (large, ST_CHUNKED_MESSAGE_BYTES_MAX),
        (small, ST_CHUNKS_PER_MESSAGE_MAX),
        (without, ENTRY_PAYLOAD_BYTES_MAX),
    ):
        assert producer.settings.payload_bytes_max == most
    await small.send(bytes(ST_CHUNKS_PER_MESSAGE_MAX))
    with pytest.raises(MessageTooLarge):
        await small.send(bytes(ST_CHUNKS_PER_MESSAGE_MAX + 1))
    with pytest.raises(MessageTooLarge):
        await large.send(bytes(ST_CHUNKED_MESSAGE_BYTES_MAX + 1))

    (segment,) = server.segments.values()
    assert len(segment.entries) == ST_CHUNKS_PER_MESSAGE_MAX


async def test_a_server_that_takes_little_gets_smaller_chunks_or_none(server: FakeServer) -> None:
    server.create(TOPIC)
    server.message_bytes_max = 64 * 1024 + 100
    async with st.PulsarClient(server.url) as client:
        producer = await client.create_producer(TOPIC, chunking_enabled=True)
        await producer.send(bytes(1_000), key="k")
        with pytest.raises(MessageTooLarge):
            await producer.send(bytes(100 * ST_CHUNKS_PER_MESSAGE_MAX + 1))
        await producer.send(b"small")

    (segment,) = server.segments.values()
    assert len(segment.entries) == 11


async def test_wrong_settings_of_chunks_are_refused(
    server: FakeServer, client: st.PulsarClient
) -> None:
    for settings in ({"chunk_bytes": 1}, {"chunking_enabled": True, "chunk_bytes": -1}):
        with pytest.raises(InvalidSettings):
            await client.create_producer(TOPIC, **settings)
    assert server.received == []
