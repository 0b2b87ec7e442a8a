"""Producers against a server that seals segments, loses connections and keeps silent."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.client import st
from nextgen.client.st.errors import (
    AlreadyClosed,
    InvalidSettings,
    MemoryLimitReached,
    MessageTooLarge,
    NoActiveSegment,
    NotSupported,
    ScalableTopicError,
    SchemaMismatch,
    SendFailed,
    ServerRefused,
    TimedOut,
    TopicNotFound,
)
from nextgen.client.st.producing.settings import METADATA_BYTES_MAX
from nextgen.client.st.schemas import schema as schemas
from nextgen.kernel.limits.pulsar import PULSAR_MESSAGE_BYTES_MAX
from nextgen.kernel.limits.scalable import ST_MEMORY_PER_MESSAGE_BYTES
from nextgen.pulsar.payload import open_payload
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.unit.client.st.conftest import TOPIC
from tests.unit.client.st.fake_server import FakeConnection, FakeServer

Command = pulsar.BaseCommand


def numbers_by_key(server: FakeServer) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = {}
    for _, key, body in server.stored():
        found.setdefault(key, []).append(int(body))
    return found


async def test_messages_are_stored_in_the_segments_of_their_keys(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC, 4)
    producer = await client.create_producer(TOPIC)

    ids = await asyncio.gather(*(producer.send(b"%d" % n, key=f"k{n % 7}") for n in range(100)))

    stored = server.stored()
    assert len(stored) == 100
    assert len({(segment, key) for segment, key, _ in stored}) == 7, "a key has one segment"
    assert all(numbers == sorted(numbers) for numbers in numbers_by_key(server).values())
    assert len(set(ids)) == 100
    assert ids[0].topic == TOPIC


async def test_batches_are_stamped_with_their_bucket_hashes(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC, buckets=(0x4000, 0x8000, 0xC000))
    producer = await client.create_producer(TOPIC)

    await asyncio.gather(*(producer.send(b"x", key=f"k{n}") for n in range(200)))

    (segment,) = server.segments.values()
    assert topic.dag.segments[0].entry_bucket_splits
    for payload, _ in segment.entries:
        metadata = open_payload(payload).metadata
        assert metadata.entry_hash_min >> 14 == metadata.entry_hash_max >> 14


async def test_order_and_messages_survive_splits_whenever_the_layout_comes(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC)
    producer = await client.create_producer(TOPIC, batch_messages_max=5)
    futures = []
    for number in range(1_000):
        futures.append(await producer.submit(b"%d" % number, key=f"k{number % 10}"))
        if number in (200, 500):
            server.split(topic, topic.dag.segments[-1].segment_id)
        if number == 700:
            server.seal(topic, topic.dag.segments[-1].segment_id)
        if number == 800:
            server.split(topic, topic.dag.segments[-1].segment_id)
        if number % 50 == 0:
            await asyncio.sleep(0.001)

    await asyncio.gather(*futures)

    numbers = numbers_by_key(server)
    assert sum(map(len, numbers.values())) == 1_000
    assert len([each for each in server.segments.values() if each.entries]) > 3
    # A segment's messages come before those of its children in ``stored``.
    assert all(each == sorted(each) for each in numbers.values())


@pytest.mark.parametrize("is_pushed_first", [True, False])
async def test_a_sealed_segment_whose_broker_opens_no_producer_any_more_holds_nothing_back(
    server: FakeServer, client: st.PulsarClient, is_pushed_first: bool
) -> None:
    topic = server.create(TOPIC)
    producer = await client.create_producer(TOPIC)
    await producer.send(b"0", key="a")

    def fence(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        is_parent = command.producer.topic.endswith("-0")
        if command.type == Command.PRODUCER and is_parent:
            connection.refuse(command.producer.request_id, pulsar.ServiceNotReady, "fenced")
            return True
        return command.type == Command.SEND and connection.producers[
            command.send.producer_id
        ].endswith("-0")

    server.answers = fence
    futures = [await producer.submit(b"%d" % number, key="a") for number in range(1, 20)]
    await asyncio.sleep(0.01)
    if is_pushed_first:
        server.split(topic, 0)
        await asyncio.sleep(0.01)
    server.connections[0].abort()
    await asyncio.sleep(0.01)
    if not is_pushed_first:
        server.split(topic, 0)

    async with timeout(2):
        await asyncio.gather(*futures)
    assert numbers_by_key(server)["a"] == list(range(20))


async def test_a_segment_that_stays_gone_fails_its_messages_after_the_last_attempt(
    server: FakeServer, client: st.PulsarClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nextgen.client.st.domain.outbox.SEGMENT_RETRY_STEP_MS", 1)
    topic = server.create(TOPIC)
    producer = await client.create_producer(TOPIC)
    server.seal(topic, 0)

    with pytest.raises(SendFailed, match="no segment took"):
        await producer.send(b"x")
    assert server.count(Command.PRODUCER) == 10


async def test_a_lost_connection_costs_no_message_and_stores_none_twice(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    producer = await client.create_producer(TOPIC)
    await producer.send(b"0", key="a")
    futures = [await producer.submit(b"%d" % number, key="a") for number in range(1, 50)]
    server.connections[0].abort()

    await asyncio.gather(*futures)

    assert numbers_by_key(server)["a"] == list(range(50))


async def test_a_producer_that_the_broker_closes_is_opened_again(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    producer = await client.create_producer(TOPIC)
    await producer.send(b"0")
    connection = server.connections[0]
    (producer_id,) = connection.producers
    connection.producers.clear()
    connection.send(
        Command(
            type=Command.CLOSE_PRODUCER,
            close_producer=pulsar.CommandCloseProducer(
                producer_id=producer_id, request_id=2**64 - 1, assignedBrokerServiceUrl=server.url
            ),
        )
    )

    await producer.send(b"1")

    assert [body for _, _, body in server.stored()] == [b"0", b"1"]


async def test_a_producer_that_is_closed_right_behind_the_answer_is_opened_again(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)

    def close_the_first(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type == Command.PRODUCER:
            server.answers = lambda connection, command: False
            connection.handle(command, b"")
            producer_id = command.producer.producer_id
            del connection.producers[producer_id]
            closing = pulsar.CommandCloseProducer(producer_id=producer_id, request_id=0)
            connection.send(Command(type=Command.CLOSE_PRODUCER, close_producer=closing))
            return True
        return False

    server.answers = close_the_first
    producer = await client.create_producer(TOPIC)

    await producer.send(b"0")

    assert [body for _, _, body in server.stored()] == [b"0"]


async def test_a_broker_that_never_answers_a_send_costs_the_send_timeout(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    producer = await client.create_producer(TOPIC, send_timeout_ms=1_000)
    server.answers = lambda connection, command: command.type == Command.SEND

    with pytest.raises(TimedOut):
        await producer.send(b"lost")
    server.answers = lambda connection, command: False

    assert str(await producer.send(b"next")).endswith("#1:0")
    assert producer.pending == 0


async def test_a_final_refusal_of_one_message_fails_that_message_only(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    producer = await client.create_producer(TOPIC)
    await producer.send(b"good")

    def refuse(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type != Command.SEND:
            return False
        connection.send(
            Command(
                type=Command.SEND_ERROR,
                send_error=pulsar.CommandSendError(
                    producer_id=command.send.producer_id,
                    sequence_id=command.send.sequence_id,
                    error=pulsar.NotAllowedError,
                    message="no",
                ),
            )
        )
        return True

    server.answers = refuse
    with pytest.raises(ServerRefused):
        await producer.send(b"bad")
    server.answers = lambda connection, command: False
    await producer.send(b"good again")

    assert len(server.stored()) == 2


async def test_a_producer_that_may_not_produce_says_so_at_the_first_message(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    producer = await client.create_producer(TOPIC)

    def refuse(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type == Command.PRODUCER:
            connection.refuse(command.producer.request_id, pulsar.AuthorizationError)
        return command.type == Command.PRODUCER

    server.answers = refuse
    with pytest.raises(ServerRefused, match="AuthorizationError"):
        await producer.send(b"x")


async def test_an_exclusive_producer_attaches_to_every_segment_at_once(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC, 3)

    await client.create_producer(TOPIC, name="me", access_mode=st.AccessMode.EXCLUSIVE)

    names = [
        each.producer.producer_name for each in server.received if each.type == Command.PRODUCER
    ]
    assert sorted(names) == ["me-seg-0", "me-seg-1", "me-seg-2"]


async def test_a_producer_may_wait_until_it_is_the_only_one(
    server: FakeServer,
) -> None:
    """The answer that it is not ready yet stops the time-out; the next one ends the waiting."""
    server.create(TOPIC)
    waiting: list[tuple[FakeConnection, pulsar.BaseCommand]] = []

    def not_yet(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type != Command.PRODUCER:
            return False
        waiting.append((connection, command))
        success = pulsar.CommandProducerSuccess(
            request_id=command.producer.request_id, producer_name="", producer_ready=False
        )
        connection.send(Command(type=Command.PRODUCER_SUCCESS, producer_success=success))
        return True

    server.answers = not_yet
    async with st.PulsarClient(server.url, operation_timeout_ms=400) as client:
        making = asyncio.create_task(
            client.create_producer(TOPIC, access_mode=st.AccessMode.WAIT_FOR_EXCLUSIVE)
        )
        done, _ = await asyncio.wait([making], timeout=0.5)
        assert not done
        server.answers = lambda connection, command: False
        connection, command = waiting[0]
        connection.handle(command, b"")

        producer = await making
        await producer.send(b"x")
    assert command.producer.producer_access_mode == pulsar.WaitForExclusive
    assert len(server.stored()) == 1


async def test_a_missing_topic_is_not_made_if_it_must_not(
    server: FakeServer, client: st.PulsarClient
) -> None:
    with pytest.raises(TopicNotFound):
        await client.create_producer(TOPIC, create_if_missing=False)
    await client.create_producer(TOPIC)
    assert TOPIC in server.topics


async def test_close_flushes_and_shutdown_does_not(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    first = await client.create_producer(TOPIC)
    stored = [first.submit_nowait(b"x") for _ in range(10)]
    await first.close()
    second = await client.create_producer(TOPIC)
    failed = second.submit_nowait(b"y")
    await second.shutdown()

    assert all(each.result() for each in stored)
    assert isinstance(failed.exception(), AlreadyClosed)
    with pytest.raises(AlreadyClosed):
        await second.send(b"z")


async def test_flush_waits_for_what_was_sent_before(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC, 2)
    producer = await client.create_producer(TOPIC)
    for number in range(20):
        producer.submit_nowait(b"%d" % number, key=f"k{number}")

    await producer.flush()

    assert (len(server.stored()), producer.pending) == (20, 0)


async def test_sending_waits_while_the_memory_limit_is_reached(server: FakeServer) -> None:
    server.create(TOPIC)
    limit = 2 * (ST_MEMORY_PER_MESSAGE_BYTES + 1)
    async with st.PulsarClient(server.url, memory_limit_bytes=limit) as client:
        producer = await client.create_producer(TOPIC)
        server.answers = lambda connection, command: command.type == Command.PRODUCER
        first = producer.submit_nowait(b"1")
        producer.submit_nowait(b"2")
        with pytest.raises(MemoryLimitReached):
            producer.submit_nowait(b"3")
        waiting = asyncio.ensure_future(producer.submit(b"3"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        assert not first.done()
        await producer.shutdown()
        with pytest.raises(AlreadyClosed):
            await waiting


async def test_a_message_has_at_most_what_fits_into_an_entry(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    producer = await client.create_producer(TOPIC)
    largest = PULSAR_MESSAGE_BYTES_MAX - METADATA_BYTES_MAX

    await producer.send(bytes(largest))
    with pytest.raises(MessageTooLarge):
        await producer.send(bytes(largest + 1))


@pytest.mark.parametrize("compression", list(st.Compression))
async def test_compressed_batches_and_all_that_a_message_has_arrive(
    server: FakeServer, client: st.PulsarClient, compression: st.Compression
) -> None:
    server.create(TOPIC)
    consumer = await client.queue_consumer(TOPIC, "s")
    producer = await client.create_producer(
        TOPIC, schema=schemas.string, compression=compression, name="p"
    )
    for number in (7, 8):
        producer.submit_nowait(
            "ä" * 100,
            key="k",
            properties={"a": "b"},
            event_time_ms=5,
            sequence_id=number,
        )
    delayed = await producer.send("later", deliver_at_ms=1)

    messages = [await consumer.receive(2_000) for _ in range(3)]

    assert [each.data for each in messages] == [*["ä".encode() * 100] * 2, b"later"]
    first = messages[0]
    assert (first.key, first.properties, first.event_time_ms) == ("k", {"a": "b"}, 5)
    assert [each.sequence_id for each in messages[:2]] == [7, 8]
    assert (first.producer_name, first.redelivery_count) == ("p-seg-0", 0)
    assert messages[2].message_id == delayed
    assert first.publish_time_ms > 0


async def test_values_that_do_not_fit_the_schema_are_not_sent(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    producer = await client.create_producer(TOPIC, schema=schemas.int32)

    with pytest.raises(SchemaMismatch):
        await producer.send(2**31)
    await producer.send(2**31 - 1)

    assert [body for _, _, body in server.stored()] == [b"\x7f\xff\xff\xff"]


async def test_a_deleted_topic_fails_its_messages_and_one_made_again_takes_them(
    server: FakeServer, client: st.PulsarClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nextgen.client.st.domain.watch_session.DELETED_AFTER_ANSWERS", 1)
    server.create(TOPIC)
    producer = await client.create_producer(TOPIC)
    topic = server.topics.pop(TOPIC)
    server.segments.clear()
    (watch,) = topic.watches
    watch[0].send_layout_error(watch[1], pulsar.TopicNotFound)
    await asyncio.sleep(0.05)

    with pytest.raises(TopicNotFound):
        await producer.send(b"x")
    server.create(TOPIC, created_at_ms=2)
    for _ in range(100):
        try:
            await producer.send(b"x")
            break
        except TopicNotFound:
            await asyncio.sleep(0.02)
    assert len(server.stored()) == 1


async def test_a_layout_without_active_segment_is_an_error_of_its_own(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC)
    topic.dag.segments[0].state = pulsar.SEALED
    producer = await client.create_producer(TOPIC)

    with pytest.raises(NoActiveSegment):
        await producer.send(b"x")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"encryption_keys": ["k"]}, NotSupported),
        ({"transaction": object()}, NotSupported),
        ({"message_router": object()}, NotSupported),
        ({"access_mode": "Exclusive"}, NotSupported),
        ({"nonsense": 1}, InvalidSettings),
        ({"batch_messages_max": 0}, InvalidSettings),
        ({"batching_delay_ms": -1}, InvalidSettings),
        ({"send_timeout_ms": True}, InvalidSettings),
        ({"compression": "LZ4"}, InvalidSettings),
        ({"name": 3}, InvalidSettings),
        ({"schema": "json"}, InvalidSettings),
    ],
)
async def test_what_is_not_supported_says_so_before_anything_is_opened(
    server: FakeServer,
    client: st.PulsarClient,
    settings: dict[str, object],
    error: type[ScalableTopicError],
) -> None:
    with pytest.raises(error):
        await client.create_producer(TOPIC, **settings)
    assert server.received == []
