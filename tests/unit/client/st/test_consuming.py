"""Consumers of all kinds against a server that splits, closes and sends again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from nextgen.client import st
from nextgen.client.st.consuming import segment_consumer, subscribing
from nextgen.client.st.consuming.receiving import Receiving
from nextgen.client.st.errors import (
    AlreadyClosed,
    InvalidCheckpoint,
    InvalidSettings,
    NotSupported,
    ScalableTopicError,
    SchemaMismatch,
    TimedOut,
    TopicNotFound,
)
from nextgen.client.st.schemas import schema as schemas
from nextgen.kernel.limits.scalable import (
    ST_ACKNOWLEDGEMENTS_PER_COMMAND_MAX,
    ST_CONSUMERS_OPENING_MAX,
    ST_RECEIVER_QUEUE_MAX,
    ST_UNACKNOWLEDGED_ENTRIES_MAX,
)
from nextgen.pulsar.payload import message_payload
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.unit.client.st.conftest import TOPIC
from tests.unit.client.st.fake_server import FakeConnection, FakeServer, FakeTopic

Command = pulsar.BaseCommand
EARLIEST = st.InitialPosition.EARLIEST
BUCKETS = ((0, 0x7FFF), (0x8000, 0xFFFF))


async def send(
    client: st.PulsarClient, first: int, last: int, *, keys: int = 5, batching: bool = True
) -> None:
    producer = await client.create_producer(TOPIC, batching_enabled=batching)
    futures = [
        producer.submit_nowait(b"%d" % number, key=f"k{number % keys}")
        for number in range(first, last)
    ]
    await asyncio.gather(*futures)
    await producer.close()


async def take(consumer: Receiving[bytes], count: int) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = {}
    for _ in range(count):
        message = await consumer.receive(3_000)
        found.setdefault(message.key, []).append(int(message.data))
        if isinstance(consumer, st.QueueConsumer):
            await consumer.acknowledge(message)
        elif isinstance(consumer, st.StreamConsumer):
            await consumer.acknowledge_cumulative(message)
    return found


async def until(condition: Callable[[], object]) -> None:
    for _ in range(300):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not come true")


def sent(server: FakeServer, kind: int) -> list[pulsar.BaseCommand]:
    return [each for each in server.received if each.type == kind]


async def queue(client: st.PulsarClient, **settings: Any) -> st.QueueConsumer[bytes]:
    settings.setdefault("initial_position", EARLIEST)
    return await client.queue_consumer(TOPIC, "s", **settings)


async def stream(client: st.PulsarClient, **settings: Any) -> st.StreamConsumer[bytes]:
    return await client.stream_consumer(TOPIC, "s", initial_position=EARLIEST, **settings)


async def consumer_of(client: st.PulsarClient, kind: str) -> Receiving[bytes]:
    match kind:
        case "queue":
            return await queue(client)
        case "stream":
            return await stream(client)
        case _:
            return await client.reader(TOPIC)


@pytest.mark.parametrize("kind", ["queue", "stream", "reader"])
async def test_every_kind_of_consumer_gets_each_key_in_order_over_a_split(
    server: FakeServer, client: st.PulsarClient, kind: str
) -> None:
    topic = server.create(TOPIC, 2)
    await send(client, 0, 100)
    consumer = await consumer_of(client, kind)
    first = await take(consumer, 100)
    server.split(topic, 0)
    await send(client, 100, 200)
    second = await take(consumer, 100)

    assert {key: first[key] + second[key] for key in first} == {
        f"k{key}": list(range(key, 200, 5)) for key in range(5)
    }
    assert consumer.receive_nowait() is None


# Queues ----------------------------------------------------------------------------------------


async def test_an_entry_is_acknowledged_at_the_broker_once_all_its_messages_are(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    await send(client, 0, 3, keys=1)
    consumer = await queue(client)
    messages = [await consumer.receive(1_000) for _ in range(3)]
    (segment,) = server.segments.values()

    for message in messages[:2]:
        await consumer.acknowledge(message)
    await asyncio.sleep(0.02)
    assert segment.subscriptions["s"].acknowledged == set()
    await consumer.acknowledge(messages[2])
    await until(lambda: segment.subscriptions["s"].acknowledged == {0})


async def test_one_ack_has_at_most_ST_ACKNOWLEDGEMENTS_PER_COMMAND_MAX_entries(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    count = ST_ACKNOWLEDGEMENTS_PER_COMMAND_MAX + 1
    producer = await client.create_producer(TOPIC, batching_enabled=False)
    await asyncio.gather(*[producer.submit_nowait(b"0") for _ in range(count)])
    consumer = await queue(client, receiver_queue=2 * count)
    messages = [await consumer.receive(1_000) for _ in range(count)]

    for message in messages:
        await consumer.acknowledge(message)
    await asyncio.sleep(0.02)

    assert [len(each.ack.message_id) for each in sent(server, Command.ACK)] == [count - 1, 1]


async def test_messages_are_received_many_at_a_time(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    await send(client, 0, 5, keys=1)
    consumer = await queue(client)
    while len(consumer.inbox) < 5:
        await asyncio.sleep(0.005)

    found = [await consumer.receive_many(most, 20) for most in (2, 10, 1)]

    assert [[int(each.data) for each in some] for some in found] == [[0, 1], [2, 3, 4], []]
    with pytest.raises(InvalidSettings):
        await consumer.receive_many(0)
    await send(client, 5, 7, keys=1)
    while len(consumer.inbox) < 2:
        await asyncio.sleep(0.005)
    consumer.inbox.fail(TopicNotFound("it was deleted"))
    assert len(await consumer.receive_many(10)) == 2
    with pytest.raises(TopicNotFound):
        await consumer.receive_many(10)


async def test_a_negatively_acknowledged_message_comes_again_alone(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    await send(client, 0, 3, keys=1)
    consumer = await queue(client, negative_ack_delay_ms=10)
    messages = [await consumer.receive(1_000) for _ in range(3)]
    await consumer.acknowledge(messages[0])
    await consumer.acknowledge(messages[2])
    await consumer.negative_acknowledge(messages[1])

    again = await consumer.receive(1_000)

    assert (again.data, again.redelivery_count) == (b"1", 1)
    with pytest.raises(TimedOut):
        await consumer.receive(50)


def test_messages_come_again_at_once_on_another_event_loop() -> None:
    async def scenario() -> None:
        async with FakeServer() as server, st.PulsarClient(server.url) as client:
            server.create(TOPIC)
            consumer = await queue(client, initial_position=EARLIEST, negative_ack_delay_ms=0)
            await send(client, 0, 3, batching=False)
            messages = [await consumer.receive(3_000) for _ in range(3)]
            for message in messages:
                await consumer.negative_acknowledge(message)
            again = {(await consumer.receive(3_000)).data for _ in range(3)}
            assert again == {b"0", b"1", b"2"}

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


async def test_what_was_not_taken_is_received_once_after_a_lost_connection(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    await send(client, 0, 20, keys=1)
    await send(client, 20, 40, keys=1)
    consumer = await queue(client)
    first = await take(consumer, 20)
    await asyncio.sleep(0.02)
    server.connections[0].abort()
    await asyncio.sleep(0.01)

    second = await take(consumer, 20)

    assert first["k0"] + second["k0"] == list(range(40))


async def test_permits_are_given_back_as_messages_are_taken(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    await send(client, 0, 1_000)
    consumer = await queue(client, receiver_queue=10)

    assert sum(map(len, (await take(consumer, 1_000)).values())) == 1_000
    assert {each.flow.messagePermits for each in sent(server, Command.FLOW)} >= {10}


async def test_at_most_ST_UNACKNOWLEDGED_ENTRIES_MAX_entries_are_kept(
    server: FakeServer, client: st.PulsarClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ST_UNACKNOWLEDGED_ENTRIES_MAX > 10
    monkeypatch.setattr(segment_consumer, "ST_UNACKNOWLEDGED_ENTRIES_MAX", 10)
    server.create(TOPIC)
    producer = await client.create_producer(TOPIC, batching_enabled=False)
    for _ in range(20):
        producer.submit_nowait(b"0")
    await producer.flush()
    consumer = await queue(client, receiver_queue=2)

    await until(lambda: len(consumer.inbox) == 2)
    messages = []
    while (message := consumer.receive_nowait()) is not None:
        messages.append(message)
        await asyncio.sleep(0.02)
    # What was requested before the limit was reached still comes: no more than the queue.
    assert 10 <= len(messages) <= 10 + 2
    assert len(messages) < ST_UNACKNOWLEDGED_ENTRIES_MAX + 1
    for message in messages:
        await consumer.acknowledge(message)
    assert await consumer.receive(1_000)


async def test_at_most_ST_CONSUMERS_OPENING_MAX_segments_are_subscribed_at_a_time(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC, ST_CONSUMERS_OPENING_MAX + 1)
    held: list[tuple[FakeConnection, pulsar.BaseCommand]] = []

    def hold(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type == Command.SUBSCRIBE:
            held.append((connection, command))
        return command.type == Command.SUBSCRIBE

    server.answers = hold
    opening = asyncio.ensure_future(queue(client))
    while len(held) < ST_CONSUMERS_OPENING_MAX:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)
    assert len(held) == ST_CONSUMERS_OPENING_MAX
    server.answers = lambda connection, command: False
    for connection, command in held:
        connection.handle(command, b"")
    assert len((await opening).segments) == ST_CONSUMERS_OPENING_MAX + 1


async def test_a_pruned_segment_is_left(server: FakeServer, client: st.PulsarClient) -> None:
    topic = server.create(TOPIC)
    consumer = await queue(client)
    server.split(topic, 0)
    await until(lambda: len(consumer.segments) == 3)
    del topic.dag.segments[0]
    topic.dag.epoch += 1
    server.push(topic)

    await until(lambda: len(consumer.segments) == 2)


@pytest.mark.parametrize("position", list(st.InitialPosition))
async def test_a_new_subscription_begins_where_it_should(
    server: FakeServer, client: st.PulsarClient, position: st.InitialPosition
) -> None:
    server.create(TOPIC)
    await send(client, 0, 1)
    consumer = await queue(client, initial_position=position)
    await send(client, 1, 2)

    expected = b"0" if position is EARLIEST else b"1"
    assert (await consumer.receive(1_000)).data == expected


async def test_an_entry_that_cannot_be_read_is_reported_and_left_out(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    metadata = pulsar.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    good = message_payload(metadata, b"0")
    metadata.num_messages_in_batch = 2
    (segment,) = server.segments.values()
    metadata_of_zip = pulsar.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, compression=pulsar.ZSTD
    )
    metadata_of_zip.uncompressed_size = 9
    segment.entries += [
        (good[:-1] + b"x", 1),
        (b"\x00", 1),
        (message_payload(metadata, b"\x00\x00\x00\x05ab"), 1),
        (message_payload(metadata_of_zip, b"nonsense"), 1),
        (good, 1),
    ]
    consumer = await queue(client)

    assert (await consumer.receive(1_000)).data == b"0"
    await until(lambda: len(sent(server, Command.ACK)) == 4)
    assert [each.ack.validation_error for each in sent(server, Command.ACK)] == [
        pulsar.CommandAck.ChecksumMismatch,
        pulsar.CommandAck.BatchDeSerializeError,
        pulsar.CommandAck.BatchDeSerializeError,
        pulsar.CommandAck.DecompressionError,
    ]


async def test_an_encrypted_message_is_an_error_and_not_skipped(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    metadata = pulsar.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.encryption_keys.add(key="k", value=b"v")
    (segment,) = server.segments.values()
    segment.entries.append((message_payload(metadata, b"?"), 1))
    consumer = await queue(client)

    with pytest.raises(NotSupported, match="encrypted"):
        await consumer.receive(1_000)
    assert segment.subscriptions["s"].acknowledged == set()


async def test_a_value_that_does_not_fit_the_schema_is_an_error_when_it_is_looked_at(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    await send(client, 0, 1)
    consumer = await client.queue_consumer(
        TOPIC, "s", schema=schemas.int64, initial_position=EARLIEST
    )
    message = await consumer.receive(1_000)

    with pytest.raises(SchemaMismatch):
        _ = message.value


# Streams ---------------------------------------------------------------------------------------


async def test_a_cumulative_acknowledgement_covers_the_vector_of_the_message(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC, 2)
    await send(client, 0, 40)
    consumer = await stream(client)
    await asyncio.sleep(0.05)
    messages = [await consumer.receive(1_000) for _ in range(40)]

    await consumer.acknowledge_cumulative(messages[-1])
    await until(
        lambda: all(
            each.subscriptions["s"].acknowledged == set(range(len(each.entries)))
            for each in server.segments.values()
        )
    )


async def test_a_shared_segment_is_subscribed_by_buckets_and_acknowledged_one_by_one(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    server.assignment = shared_by(server)  # type: ignore[method-assign]
    await send(client, 0, 10)
    consumer = await stream(client)
    await take(consumer, 10)
    await asyncio.sleep(0.02)

    (subscribe,) = [each.subscribe for each in sent(server, Command.SUBSCRIBE)]
    assert subscribe.subType == pulsar.CommandSubscribe.Key_Shared
    assert subscribe.keySharedMeta.entryBucketDispatch
    assert [(each.start, each.end) for each in subscribe.keySharedMeta.hashRanges] == list(BUCKETS)
    kinds = {each.ack.ack_type for each in sent(server, Command.ACK)}
    assert kinds == {pulsar.CommandAck.Individual}


async def test_a_segment_that_leaves_is_closed_when_what_it_delivered_is_acknowledged(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC, 2)
    await send(client, 0, 40, batching=False)
    consumer = await stream(client)
    await asyncio.sleep(0.05)
    messages = [await consumer.receive(1_000) for _ in range(5)]
    leaving = messages[0].segment
    plain = server.assignment

    def fewer(topic: Any, consumer_id: int) -> pulsar.ScalableConsumerAssignment:
        assignment = plain(topic, consumer_id)
        for index, segment in enumerate(assignment.segments):
            if segment.segment_topic == leaving:
                del assignment.segments[index]
                break
        return assignment

    server.assignment = fewer  # type: ignore[method-assign]
    server.assign(topic)
    await asyncio.sleep(0.05)
    assert server.count(Command.CLOSE_CONSUMER) == 0
    rest = []
    while (message := consumer.receive_nowait()) is not None:
        rest.append(message)
    assert leaving not in {each.segment for each in rest}
    await consumer.acknowledge_cumulative(rest[-1])
    await until(lambda: server.count(Command.CLOSE_CONSUMER) == 1)
    assert len(consumer.assigned) == 1
    taken = {each.position.entry_id for each in messages if each.segment == leaving}
    assert server.segments[leaving].subscriptions["s"].acknowledged == taken


@pytest.mark.parametrize("kind", ["queue", "stream", "reader"])
async def test_a_segment_that_leaves_while_it_is_subscribed_fails_no_consumer(
    server: FakeServer, client: st.PulsarClient, kind: str
) -> None:
    topic = server.create(TOPIC)
    held: list[pulsar.BaseCommand] = []

    def hold_the_first(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        is_first = command.type == Command.SUBSCRIBE and not held
        if is_first:
            held.append(command)
        return is_first

    server.answers = hold_the_first
    opening = asyncio.ensure_future(consumer_of(client, kind))
    await until(lambda: held)
    server.split(topic, 0)
    del topic.dag.segments[0]
    topic.dag.epoch += 1
    server.push(topic)
    server.assign(topic)

    consumer = await opening
    await send(client, 0, 10)
    assert await take(consumer, 10) == {f"k{key}": [key, key + 5] for key in range(5)}


async def test_a_segment_changes_its_mode_once_all_that_it_delivered_is_acknowledged(
    server: FakeServer, client: st.PulsarClient
) -> None:
    """There and back again: positions of before the first change hold up none of later ones."""
    topic = server.create(TOPIC)
    plain, shared = server.assignment, shared_by(server)
    await send(client, 0, 9, batching=False)
    consumer = await stream(client)
    kinds = [pulsar.CommandSubscribe.Exclusive]

    for mode, kind in (
        (shared, pulsar.CommandSubscribe.Key_Shared),
        (plain, pulsar.CommandSubscribe.Exclusive),
    ):
        messages = [await consumer.receive(1_000) for _ in range(3)]
        server.assignment = mode  # type: ignore[method-assign]
        server.assign(topic)
        await asyncio.sleep(0.05)
        assert consumer.receive_nowait() is None
        assert [each.subscribe.subType for each in sent(server, Command.SUBSCRIBE)] == kinds

        await consumer.acknowledge_cumulative(messages[-1])
        kinds.append(kind)
        await until(lambda: server.count(Command.SUBSCRIBE) == len(kinds))
        assert [each.subscribe.subType for each in sent(server, Command.SUBSCRIBE)] == kinds

    assert sum(map(len, (await take(consumer, 3)).values())) == 3


def shared_by(server: FakeServer) -> Any:
    """Return assignments of all segments by buckets."""
    plain = server.assignment

    def shared(topic: FakeTopic, consumer_id: int) -> pulsar.ScalableConsumerAssignment:
        assignment = plain(topic, consumer_id)
        for segment in assignment.segments:
            for first, last in BUCKETS:
                segment.bucket_ranges.add(start=first, end=last)
        return assignment

    return shared


async def test_an_unchanged_assignment_subscribes_nothing_again(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC)
    await stream(client)
    topic.dag.epoch += 1
    server.push(topic)
    await asyncio.sleep(0.05)

    assert server.count(Command.SUBSCRIBE) == 1


async def test_closing_leaves_the_group_and_acknowledges_nothing(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC)
    await send(client, 0, 5)
    consumer = await stream(client, consumer_name="me")
    await consumer.receive(1_000)
    assert set(topic.members) == {"me"}
    await consumer.close()

    await until(lambda: not topic.members)
    assert server.count(Command.SCALABLE_TOPIC_UNSUBSCRIBE) == 1
    assert server.count(Command.ACK) == 0


async def test_a_server_without_the_command_to_leave_sees_the_connection_end(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.version = "Pulsar Server5.0.0-M1"
    topic = server.create(TOPIC)
    consumer = await stream(client)
    before = len(server.connections)
    await consumer.close()

    await until(lambda: not topic.members and len(server.connections) == before - 1)
    assert server.count(Command.SCALABLE_TOPIC_UNSUBSCRIBE) == 0


async def test_a_consumer_registers_again_under_its_name_after_a_lost_connection(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC)
    await send(client, 0, 5)
    consumer = await stream(client, consumer_name="me")
    await take(consumer, 5)
    await asyncio.sleep(0.02)
    server.connections[0].abort()
    await until(lambda: topic.members and server.count(Command.SCALABLE_TOPIC_SUBSCRIBE) == 2)
    await send(client, 5, 10)

    assert sum(map(len, (await take(consumer, 5)).values())) == 5


# Readers and checkpoints -----------------------------------------------------------------------


async def test_reading_goes_on_behind_a_checkpoint_in_every_segment(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC, 2)
    await send(client, 0, 50)
    first = await client.reader(TOPIC)
    begun = await take(first, 23)
    data = first.checkpoint().to_bytes()
    await first.close()
    server.split(topic, 1)
    await send(client, 50, 100)

    second = await client.checkpoint_consumer(TOPIC, checkpoint=data)
    rest = await take(second, 77)

    assert {key: begun.get(key, []) + rest[key] for key in rest} == {
        f"k{key}": list(range(key, 100, 5)) for key in range(5)
    }
    assert not await second.has_message_available()


async def test_a_checkpoint_in_a_pruned_segment_goes_on_with_the_earliest_of_what_remains(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC)
    await send(client, 0, 10)
    first = await client.reader(TOPIC)
    await take(first, 4)
    data = first.checkpoint().to_bytes()
    await first.close()
    server.split(topic, 0)
    await send(client, 10, 20)
    pruned = topic.dag.segments[0]
    del server.segments[server.segment_name(topic, pruned)]
    del topic.dag.segments[0]
    for child in topic.dag.segments:
        del child.parent_ids[:]
    topic.dag.epoch += 1

    second = await client.checkpoint_consumer(TOPIC, checkpoint=data)
    rest = await take(second, 10)

    assert rest == {f"k{key}": list(range(10 + key, 20, 5)) for key in range(5)}
    assert not await second.has_message_available()
    assert len(second.checkpoint().marks) == 2


async def test_reading_goes_on_behind_a_segment_that_was_sealed_empty(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC)
    server.split(topic, 0)
    await send(client, 0, 10)

    reader = await client.reader(TOPIC)

    assert await take(reader, 10) == {f"k{key}": [key, key + 5] for key in range(5)}


async def test_a_consumer_that_is_closed_right_behind_the_answer_subscribes_again(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)

    def close_the_first(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type != Command.SUBSCRIBE:
            return False
        server.answers = lambda connection, command: False
        connection.success(command.subscribe.request_id)
        consumer_id = command.subscribe.consumer_id
        closing = pulsar.CommandCloseConsumer(consumer_id=consumer_id, request_id=0)
        connection.send(Command(type=Command.CLOSE_CONSUMER, close_consumer=closing))
        return True

    server.answers = close_the_first
    consumer = await queue(client, initial_position=EARLIEST)
    await send(client, 0, 5)

    assert sorted(await take(consumer, 5)) == [f"k{key}" for key in range(5)]


async def test_a_connection_that_ends_while_the_place_is_asked_for_is_replaced_once(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)

    def abort_then_keep_silent(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type == Command.GET_LAST_MESSAGE_ID:
            connection.abort()
        return command.type == Command.SUBSCRIBE and server.count(Command.SUBSCRIBE) > 1

    server.answers = abort_then_keep_silent
    await client.checkpoint_consumer(TOPIC)
    await asyncio.sleep(0.6)

    assert server.count(Command.SUBSCRIBE) == 2, "a second attempt waits for the answer"


async def test_an_assignment_right_behind_the_answer_is_the_newer_one(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC, 2)

    def push_at_once(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type != Command.SCALABLE_TOPIC_SUBSCRIBE:
            return False
        subscribe = command.scalableTopicSubscribe
        whole = server.assignment(topic, subscribe.consumer_id)
        part = pulsar.ScalableConsumerAssignment()
        part.CopyFrom(whole)
        del part.segments[1:]
        answer = pulsar.CommandScalableTopicSubscribeResponse(
            request_id=subscribe.request_id, assignment=part
        )
        connection.send(
            Command(
                type=Command.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
                scalableTopicSubscribeResponse=answer,
            )
        )
        update = pulsar.CommandScalableTopicAssignmentUpdate(
            consumer_id=subscribe.consumer_id, assignment=whole
        )
        connection.send(
            Command(
                type=Command.SCALABLE_TOPIC_ASSIGNMENT_UPDATE, scalableTopicAssignmentUpdate=update
            )
        )
        return True

    server.answers = push_at_once
    consumer = await stream(client)

    await until(lambda: len(consumer.assigned) == 2)


@pytest.mark.parametrize("batching", [True, False])
async def test_a_checkpoint_at_the_last_message_of_a_sealed_segment_leads_to_its_children(
    server: FakeServer, client: st.PulsarClient, batching: bool
) -> None:
    """The server sends the entry again that the reader begins behind."""
    server.sends_start_entry = True
    topic = server.create(TOPIC)
    await send(client, 0, 3, keys=1, batching=batching)
    first = await client.reader(TOPIC)
    last = [await first.receive(3_000) for _ in range(3)][-1]
    data = first.checkpoint().to_bytes()
    await first.close()
    server.split(topic, 0)
    await send(client, 3, 4, keys=1)

    second = await client.checkpoint_consumer(TOPIC, checkpoint=data)

    assert last.position.batch_index == (2 if batching else -1)
    assert await take(second, 1) == {"k0": [3]}


async def test_a_checkpoint_of_another_topic_is_refused(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    other = st.Checkpoint("topic://public/default/other", {})

    with pytest.raises(InvalidCheckpoint, match="other"):
        await client.checkpoint_consumer(TOPIC, checkpoint=other)
    with pytest.raises(InvalidCheckpoint):
        await client.checkpoint_consumer(TOPIC, checkpoint=b"nonsense")


async def test_a_group_of_readers_shares_segments_and_goes_on_where_each_stopped(
    server: FakeServer, client: st.PulsarClient
) -> None:
    """1. a reads 20 messages of two segments. 2. b joins and gets one of them, which it reads from
    its own start. 3. The other segment is split, and its children are a's. 4. b leaves, and a goes
    on where it was in b's segment."""
    topic = server.create(TOPIC, 2)
    everything = server.assignment

    def shared(of: FakeTopic, consumer_id: int) -> pulsar.ScalableConsumerAssignment:
        assignment = everything(of, consumer_id)
        if "b" in of.members:
            is_of_b = of.members["b"][1] == consumer_id
            kept = [each for each in assignment.segments if (each.segment_id == 1) is is_of_b]
            del assignment.segments[:]
            assignment.segments.extend(kept)
        return assignment

    server.assignment = shared  # type: ignore[method-assign]
    await send(client, 0, 40)
    first = await client.reader(TOPIC, group="g", consumer_name="a")
    assert sent(server, Command.SCALABLE_TOPIC_SUBSCRIBE)[
        0
    ].scalableTopicSubscribe.consumer_type == (pulsar.CHECKPOINT)
    found = await take(first, 20)
    second = await client.reader(TOPIC, group="g", consumer_name="b")
    server.push(topic)
    while len(first.assigned) != 1:
        await asyncio.sleep(0.005)
    of_second = await _drained(second)
    assert of_second
    assert of_second == {key: _stored(server, key) for key in of_second}

    server.split(topic, 0)
    await send(client, 40, 60)
    await second.close()
    server.push(topic)
    while len(first.assigned) != 4:
        await asyncio.sleep(0.005)
    rest = await _drained(first)
    for key in {*found, *rest}:
        assert found.get(key, []) + rest.get(key, []) == _stored(server, key)


def _stored(server: FakeServer, key: str | None) -> list[int]:
    return [int(body) for _, stored, body in server.stored() if stored == key]


async def _drained(reader: st.CheckpointConsumer[bytes]) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = {}
    while await reader.has_message_available():
        message = await reader.receive(1_000)
        found.setdefault(message.key, []).append(int(message.data))
    return found


async def test_reading_from_the_latest_skips_what_is_stored_and_sealed(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC)
    await send(client, 0, 10)
    server.split(topic, 0)
    await send(client, 10, 20)
    reader = await client.checkpoint_consumer(TOPIC)
    assert not await reader.has_message_available()
    await send(client, 20, 30)

    taken = await take(reader, 10)
    assert sorted(number for numbers in taken.values() for number in numbers) == list(range(20, 30))


async def test_a_reader_that_lost_its_connection_goes_on_behind_the_last_message_taken(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    await send(client, 0, 20, keys=1)
    reader = await client.reader(TOPIC)
    first = await take(reader, 7)
    server.connections[0].abort()
    await asyncio.sleep(0.05)

    assert first["k0"] + (await take(reader, 13))["k0"] == list(range(20))


async def test_a_reader_waits_for_children_before_it_says_that_nothing_is_left(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC)
    await send(client, 0, 5)
    server.split(topic, 0)
    await send(client, 5, 10)
    reader = await client.reader(TOPIC)
    found = 0
    while await reader.has_message_available():
        await reader.receive(1_000)
        found += 1

    assert found == 10


async def test_reading_from_a_time_leaves_out_earlier_messages(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    await send(client, 0, 1)

    await client.checkpoint_consumer(TOPIC, start_at_ms=0)

    (subscribe,) = [each.subscribe for each in sent(server, Command.SUBSCRIBE)]
    assert subscribe.start_message_rollback_duration_sec > 1_000_000


async def test_reading_from_a_time_begins_there_after_a_lost_connection(
    server: FakeServer, client: st.PulsarClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protocol has the age of the time, which grows."""
    server.create(TOPIC)
    monkeypatch.setattr(subscribing, "now_ms", lambda: 100_000)
    await client.checkpoint_consumer(TOPIC, start_at_ms=90_000)
    monkeypatch.setattr(subscribing, "now_ms", lambda: 700_000)
    server.connections[0].abort()
    await until(lambda: server.count(Command.SUBSCRIBE) == 2)

    subscribed = [each.subscribe for each in sent(server, Command.SUBSCRIBE)]
    assert [each.start_message_rollback_duration_sec for each in subscribed] == [12, 612]


async def test_reading_from_a_time_goes_on_behind_a_segment_that_is_older(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC)
    await send(client, 0, 3)
    server.split(topic, 0)
    await asyncio.sleep(0.005)
    since = time.time_ns() // 1_000_000
    await send(client, 3, 6)

    reader = await client.checkpoint_consumer(TOPIC, start_at_ms=since)
    taken = await take(reader, 3)

    assert sorted(number for each in taken.values() for number in each) == [3, 4, 5]
    assert not await reader.has_message_available()


# All kinds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["queue", "stream", "reader"])
async def test_a_topic_that_was_created_again_is_consumed_from_its_start(
    server: FakeServer, client: st.PulsarClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("nextgen.client.st.domain.watch_session.DELETED_AFTER_ANSWERS", 1)
    server.create(TOPIC)
    await send(client, 0, 10)
    consumer: Receiving[bytes] = await {
        "queue": queue,
        "stream": stream,
        "reader": lambda client: client.reader(TOPIC),
    }[kind](client)
    await take(consumer, 10)
    gone = server.topics.pop(TOPIC)
    server.segments.clear()
    for connection, session_id in gone.watches:
        connection.send_layout_error(session_id, pulsar.TopicNotFound)
    with pytest.raises(TopicNotFound):
        await consumer.receive(1_000)
    # Ids of ledgers begin anew, too.
    server._last_ledger = -1
    server.create(TOPIC, created_at_ms=2)
    for connection in list(server.connections):
        connection.abort()
    async with st.PulsarClient(server.url) as another:
        await send(another, 100, 110)

    await until(
        lambda: consumer.layout is not None and consumer.layout.segments[0].created_at_ms == 2
    )
    assert await take(consumer, 10) == {f"k{key}": [100 + key, 105 + key] for key in range(5)}


async def test_whoever_waits_for_a_message_of_a_closed_consumer_gets_an_error(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    consumer = await queue(client)
    waiting = [asyncio.ensure_future(consumer.receive()) for _ in range(2)]
    iterating = asyncio.ensure_future(_all(consumer))
    await asyncio.sleep(0.01)
    await consumer.close()

    for each in waiting:
        with pytest.raises(AlreadyClosed):
            await each
    assert await iterating == []


async def _all(consumer: st.QueueConsumer[bytes]) -> list[bytes]:
    return [message.data async for message in consumer]


@pytest.mark.parametrize("kind", ["queue_consumer", "stream_consumer"])
async def test_a_missing_topic_is_told_from_a_server_that_does_not_answer(
    server: FakeServer, client: st.PulsarClient, kind: str
) -> None:
    with pytest.raises(TopicNotFound):
        await getattr(client, kind)(TOPIC, "s", create_if_missing=False)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"replicate_subscription_state": True}, NotSupported),
        ({"crypto_key_reader": 1}, NotSupported),
        ({"nonsense": 1}, InvalidSettings),
        ({"receiver_queue": 0}, InvalidSettings),
        ({"receiver_queue": ST_RECEIVER_QUEUE_MAX + 1}, InvalidSettings),
        ({"consumer_name": ""}, InvalidSettings),
        ({"initial_position": "earliest"}, InvalidSettings),
        ({"negative_ack_delay_ms": -1}, InvalidSettings),
    ],
)
async def test_what_is_not_supported_says_so_before_anything_is_opened(
    server: FakeServer,
    client: st.PulsarClient,
    settings: dict[str, object],
    error: type[ScalableTopicError],
) -> None:
    with pytest.raises(error):
        await client.queue_consumer(TOPIC, "s", **settings)
    with pytest.raises(InvalidSettings):
        await client.stream_consumer(TOPIC, "")
    assert server.received == []


async def test_a_consumer_may_have_ST_RECEIVER_QUEUE_MAX_messages_ahead(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)

    await queue(client, receiver_queue=ST_RECEIVER_QUEUE_MAX)

    assert sent(server, Command.FLOW)[0].flow.messagePermits == ST_RECEIVER_QUEUE_MAX
