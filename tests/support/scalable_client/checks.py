"""What the client promises, checked against a real server. All of them are in ``CHECKS``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from nextgen.client import st
from nextgen.client.st import schemas
from nextgen.client.st.consuming.receiving import Receiving
from nextgen.client.st.domain.key_hash import classic_partition, key_hash
from nextgen.client.st.errors import (
    InvalidCheckpoint,
    ScalableTopicError,
    TimedOut,
    TopicNotFound,
)
from tests.support.scalable_client.servers import Server

Check = Callable[[Server, str], Awaitable[None]]

ARRIVES_MS = 30_000
"""For a message that must arrive. Only a failing check waits that long."""

QUIET_MS = 300
EARLIEST = st.InitialPosition.EARLIEST
KEYS = 10


@dataclass
class Order:
    number: int
    note: str | None = None


@dataclass
class Numbered:
    number: int


Numbers = dict[str | None, list[int]]


def expected(first: int, last: int) -> Numbers:
    """The numbers of each key that ``send`` sends."""
    return {
        f"k{key}": [number for number in range(first, last) if number % KEYS == key]
        for key in range(KEYS)
    }


async def send(producer: st.Producer[bytes], first: int, last: int) -> list[st.MessageId]:
    futures = [
        await producer.submit(b"%d" % number, key=f"k{number % KEYS}")
        for number in range(first, last)
    ]
    return list(await asyncio.gather(*futures))


Consumer = Receiving[bytes] | st.NamespaceQueueConsumer[bytes] | st.NamespaceStreamConsumer[bytes]


async def take(consumer: Consumer, count: int) -> Numbers:
    """Receive so many messages, acknowledge them, and return their numbers by key."""
    found: Numbers = {}
    message = None
    for _ in range(count):
        message = await consumer.receive(ARRIVES_MS)
        found.setdefault(message.key, []).append(int(message.data))
        if isinstance(consumer, st.QueueConsumer | st.NamespaceQueueConsumer):
            await consumer.acknowledge(message)
    if isinstance(consumer, st.StreamConsumer | st.NamespaceStreamConsumer) and message is not None:
        await consumer.acknowledge_cumulative(message)
    return found


async def nothing_arrives(consumer: Consumer) -> None:
    with pytest.raises(TimedOut):
        await consumer.receive(QUIET_MS)


async def what_a_message_carries(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        consumer = await client.queue_consumer(topic, "s", schema=schemas.string)
        producer = await client.create_producer(topic, schema=schemas.string, name="who")
        sent = await producer.send(
            "gruß", key="schlüssel", properties={"a": "1"}, event_time_ms=77, sequence_id=5
        )
        message = await consumer.receive(ARRIVES_MS)

        assert (message.value, message.key, message.properties) == ("gruß", "schlüssel", {"a": "1"})
        assert (message.event_time_ms, message.sequence_id) == (77, 5)
        assert message.producer_name == "who-seg-0"
        assert message.message_id == sent
        assert message.topic == topic


async def batches_in_every_compression(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        consumer = await client.queue_consumer(topic, "s")
        for compression in st.Compression:
            producer = await client.create_producer(topic, compression=compression)
            await send(producer, 0, 50)
            assert await take(consumer, 50) == expected(0, 50)
            await producer.close()


async def large_messages_in_chunks(server: Server, name: str) -> None:
    topic = await server.create(name)
    large = bytes(range(256)) * 100
    bodies = [b"small", large, large[::-1], b"last"]
    async with server.client() as client:
        for compression in (st.Compression.NONE, st.Compression.LZ4):
            producer = await client.create_producer(
                topic, compression=compression, chunking_enabled=True, chunk_bytes=5_000
            )
            for body in bodies:
                await producer.send(body, key="k")
        settings = {"initial_position": EARLIEST, "negative_ack_delay_ms": 10}
        queue = await client.queue_consumer(topic, "q", **settings)
        stream = await server.stream_consumer(client, topic, "s", initial_position=EARLIEST)
        for consumer in (queue, stream, await client.reader(topic)):
            found = [await consumer.receive(ARRIVES_MS) for _ in range(2 * len(bodies))]
            assert [each.data for each in found] == 2 * bodies
            if consumer is stream:
                await stream.acknowledge_cumulative(found[-1])
            if consumer is queue:
                await queue.negative_acknowledge(found[1])
                for each in (found[0], *found[2:]):
                    await queue.acknowledge(each)
                assert (await queue.receive(ARRIVES_MS)).data == large


async def keys_over_several_segments(server: Server, name: str) -> None:
    topic = await server.create(name, 4)
    async with server.client() as client:
        consumer = await client.queue_consumer(topic, "s")
        producer = await client.create_producer(topic)
        ids = await send(producer, 0, 200)

        assert await take(consumer, 200) == expected(0, 200)
        assert len({each.segment for each in ids}) > 1
        assert len({(each.segment, number % KEYS) for number, each in enumerate(ids)}) == KEYS


async def a_queue_is_shared_and_what_was_not_acknowledged_comes_again(
    server: Server, name: str
) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        first = await client.queue_consumer(topic, "s", receiver_queue=5)
        producer = await client.create_producer(topic, batching_enabled=False)
        await send(producer, 0, 20)
        taken = [int((await first.receive(ARRIVES_MS)).data) for _ in range(3)]
        second = await client.queue_consumer(topic, "s")
        await first.close()
        found = await take(second, 20)

        assert sorted(number for each in found.values() for number in each) == list(range(20))
        assert taken == [0, 1, 2]
        await nothing_arrives(second)


async def a_negative_acknowledgement_brings_a_message_again(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        consumer = await client.queue_consumer(topic, "s", negative_ack_delay_ms=50)
        producer = await client.create_producer(topic)
        await send(producer, 0, 3)
        messages = [await consumer.receive(ARRIVES_MS) for _ in range(3)]
        await consumer.acknowledge(messages[0])
        await consumer.negative_acknowledge(messages[1])
        await consumer.acknowledge(messages[2])
        again = await consumer.receive(ARRIVES_MS)

        assert (again.data, again.redelivery_count > 0) == (b"1", True)
        await consumer.acknowledge(again)
        await nothing_arrives(consumer)


async def acknowledgements_are_kept(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        consumer = await client.queue_consumer(topic, "s", initial_position=EARLIEST)
        producer = await client.create_producer(topic)
        await send(producer, 0, 50)
        await take(consumer, 50)
        await consumer.close()
        await send(producer, 50, 60)
    async with server.client() as client:
        consumer = await client.queue_consumer(topic, "s", initial_position=EARLIEST)
        assert await take(consumer, 10) == expected(50, 60)
        await nothing_arrives(consumer)


async def a_new_subscription_begins_at_its_initial_position(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        producer = await client.create_producer(topic)
        await send(producer, 0, 10)
        early = await client.queue_consumer(topic, "early", initial_position=EARLIEST)
        late = await client.queue_consumer(topic, "late")
        await send(producer, 10, 20)

        assert await take(early, 20) == expected(0, 20)
        assert await take(late, 10) == expected(10, 20)


async def a_reader_goes_on_behind_its_checkpoint(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        producer = await client.create_producer(topic)
        await send(producer, 0, 50)
        first = await client.reader(topic)
        begun = await take(first, 23)
        data = first.checkpoint().to_bytes()
        await first.close()
        await send(producer, 50, 70)
        second = await client.checkpoint_consumer(topic, checkpoint=data)
        rest = await take(second, 47)

        whole = {key: begun.get(key, []) + rest.get(key, []) for key in {*begun, *rest}}
        assert whole == expected(0, 70)
        assert not await second.has_message_available()
        with pytest.raises(InvalidCheckpoint):
            await client.checkpoint_consumer(
                topic, checkpoint=st.Checkpoint("topic://public/default/other", {})
            )


async def a_reader_knows_whether_there_is_more(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        producer = await client.create_producer(topic)
        await send(producer, 0, 10)
        late = await client.checkpoint_consumer(topic)
        assert not await late.has_message_available()
        await send(producer, 10, 15)
        found: Numbers = {}
        while await late.has_message_available():
            for key, numbers in (await take(late, 1)).items():
                found.setdefault(key, []).extend(numbers)

        assert found == {key: each for key, each in expected(10, 15).items() if each}


async def reading_begins_at_a_time(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        producer = await client.create_producer(topic)
        await send(producer, 0, 5)
        await asyncio.sleep(0.05)
        await send(producer, 5, 6)
        reader = await client.reader(topic)
        since = [await reader.receive(ARRIVES_MS) for _ in range(6)][-1].publish_time_ms
        again = await client.checkpoint_consumer(topic, start_at_ms=since)

        assert (await again.receive(ARRIVES_MS)).data == b"5"


async def a_stream_acknowledges_all_before_a_message(server: Server, name: str) -> None:
    topic = await server.create(name, 2)
    async with server.client() as client:
        producer = await client.create_producer(topic)
        await send(producer, 0, 100)
        consumer = await server.stream_consumer(
            client, topic, "s", initial_position=EARLIEST, consumer_name="same"
        )
        assert len(consumer.assigned) == 2
        assert await take(consumer, 100) == expected(0, 100)
        await consumer.close()
        await send(producer, 100, 110)
    async with server.client() as client:
        consumer = await server.stream_consumer(client, topic, "s", consumer_name="same")
        assert await take(consumer, 10) == expected(100, 110)
        await nothing_arrives(consumer)


async def streams_share_the_segments(server: Server, name: str) -> None:
    topic = await server.create(name, 2)
    async with server.client() as client:
        producer = await client.create_producer(topic)
        first = await server.stream_consumer(client, topic, "s", consumer_name="a")
        second = await server.stream_consumer(client, topic, "s", consumer_name="b")
        await until(lambda: len(first.assigned) == len(second.assigned) == 1)
        await send(producer, 0, 100)
        found: Numbers = {}
        for consumer in (first, second):
            while sum(map(len, found.values())) < 100:
                try:
                    message = await consumer.receive(1_000)
                except TimedOut:
                    break
                found.setdefault(message.key, []).append(int(message.data))

        assert found == expected(0, 100)


async def a_queue_follows_the_topics_of_a_namespace(server: Server, name: str) -> None:
    mark = {"check": name}
    first = await server.create_with(f"{name}-1", mark | {"more": "x"})
    other = await server.create_with(f"{name}-2", {"check": "another"})
    async with server.client() as client:
        consumer = await client.namespace_queue_consumer(
            "public/default", "s", property_filters=mark, initial_position=EARLIEST
        )
        producer = await client.create_producer(first)
        await send(await client.create_producer(other), 0, 10)
        await send(producer, 0, 50)
        assert await take(consumer, 50) == expected(0, 50)
        later = await server.create_with(f"{name}-3", mark)
        await send(await client.create_producer(later), 50, 100)
        assert await take(consumer, 50) == expected(50, 100)

        await producer.close()
        await server.delete(f"{name}-1")
        await until(lambda: consumer.topics == (later,))
        await nothing_arrives(consumer)


async def a_stream_of_a_namespace_acknowledges_in_all_topics(server: Server, name: str) -> None:
    mark = {"check": name}
    topics = [await server.create_with(f"{name}-{number}", mark) for number in range(2)]
    settings: dict[str, Any] = {"property_filters": mark, "consumer_name": "same"}
    async with server.client() as client:
        producers = [await client.create_producer(topic) for topic in topics]
        async with await client.namespace_stream_consumer(
            "public/default", "s", initial_position=EARLIEST, **settings
        ) as consumer:
            for number in range(10):
                producer = producers[number % 2]
                await send(producer, 10 * number, 10 * number + 10)
            assert await take_sorted(consumer, 100) == expected(0, 100)
            await send(producers[0], 100, 110)
    async with server.client() as client:
        consumer = await client.namespace_stream_consumer("public/default", "s", **settings)
        assert await take(consumer, 10) == expected(100, 110)
        await nothing_arrives(consumer)


async def take_sorted(consumer: Consumer, count: int) -> Numbers:
    """Do as ``take``, of topics that have no order among them."""
    return {key: sorted(numbers) for key, numbers in (await take(consumer, count)).items()}


async def readers_of_a_group_share_the_segments(server: Server, name: str) -> None:
    topic = await server.create(name, 2)
    async with server.client() as client:
        producer = await client.create_producer(topic)
        await send(producer, 0, 50)
        first = await client.reader(topic, group="g", consumer_name="a")
        second = await client.reader(topic, group="g", consumer_name="b")
        await until(lambda: len(first.assigned) == len(second.assigned) == 1)
        await send(producer, 50, 100)
        found: Numbers = {}
        for reader in (first, second):
            while await reader.has_message_available():
                message = await reader.receive(ARRIVES_MS)
                found.setdefault(message.key, []).append(int(message.data))

        assert found == expected(0, 100)


async def queues_and_readers_over_splits(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        producer = await client.create_producer(topic)
        reader = await client.reader(topic)
        queue = await client.queue_consumer(topic, "queue", initial_position=EARLIEST)
        await _split_twice(server, name, producer)

        for consumer in (reader, queue):
            assert await _take_distinct(consumer, 2_100) == expected(0, 2_100), consumer
        assert producer.layout is not None
        assert len(producer.layout.active) == 3


async def streams_over_splits(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        producer = await client.create_producer(topic)
        stream = await server.stream_consumer(client, topic, "s", initial_position=EARLIEST)
        await _split_twice(server, name, producer)

        assert await _take_distinct(stream, 2_100) == expected(0, 2_100)


async def _split_twice(server: Server, name: str, producer: st.Producer[bytes]) -> None:
    """Send 2,100 messages; split the topic in between."""
    gap_ms = 0.0
    for first, segment_id in ((0, 0), (1_000, 1)):
        sending = asyncio.ensure_future(_send_slowly(producer, first, first + 1_000))
        await (asyncio.sleep(0.1) if server.splits_under_load else sending)
        await server.split(name, segment_id)
        gap_ms = max(gap_ms, await sending)
    await until(lambda: producer.layout is not None and producer.layout.epoch == 2)
    await send(producer, 2_000, 2_100)
    print(f"the longest time without a receipt over two splits: {gap_ms:.0f} ms")


async def _send_slowly(producer: st.Producer[bytes], begin: int, end: int) -> float:
    """Send for a quarter of a second; return the longest time in which nothing was stored."""
    loop = asyncio.get_running_loop()
    stored_at = [loop.time()]
    futures = []
    for number in range(begin, end):
        future = await producer.submit(b"%d" % number, key=f"k{number % KEYS}")
        future.add_done_callback(lambda _: stored_at.append(loop.time()))
        futures.append(future)
        if number % 20 == 0:
            await asyncio.sleep(0.005)
    await asyncio.gather(*futures)
    return max((after - before) * 1_000 for before, after in pairwise(stored_at))


async def _take_distinct(consumer: Receiving[bytes], count: int) -> Numbers:
    """As ``take``, until so many different numbers came, acknowledging as it goes: the children of
    a segment come behind its acknowledged messages.

    A message whose receipt was lost with the connection is stored a second time. Only the first
    time counts, except for a queue, which has no order among its segments.
    """
    found: Numbers = {}
    seen: set[int] = set()
    while len(seen) < count:
        message = await consumer.receive(ARRIVES_MS)
        number = int(message.data)
        if number not in seen:
            seen.add(number)
            found.setdefault(message.key, []).append(number)
        if isinstance(consumer, st.QueueConsumer):
            await consumer.acknowledge(message)
        elif isinstance(consumer, st.StreamConsumer):
            await consumer.acknowledge_cumulative(message)
    if isinstance(consumer, st.QueueConsumer):
        return {key: sorted(numbers) for key, numbers in found.items()}
    return found


async def a_message_is_delivered_later(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        consumer = await client.queue_consumer(topic, "s")
        producer = await client.create_producer(topic)
        await producer.send(b"later", deliver_after_ms=1_500)
        await nothing_arrives(consumer)
        message = await consumer.receive(ARRIVES_MS)

        assert message.data == b"later"


async def one_exclusive_producer_at_a_time(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        first = await client.create_producer(topic, access_mode=st.AccessMode.EXCLUSIVE)
        with pytest.raises(ScalableTopicError):
            await client.create_producer(topic, access_mode=st.AccessMode.EXCLUSIVE)
        await first.send(b"x")
        await first.close()
        second = await client.create_producer(topic, access_mode=st.AccessMode.EXCLUSIVE)
        await second.send(b"y")

        waiting = asyncio.create_task(
            client.create_producer(topic, access_mode=st.AccessMode.WAIT_FOR_EXCLUSIVE)
        )
        done, _ = await asyncio.wait([waiting], timeout=QUIET_MS / 1_000)
        assert not done
        await second.close()
        third = await waiting
        await third.send(b"z")

        fencing = st.AccessMode.EXCLUSIVE_WITH_FENCING
        last = await client.create_producer(topic, access_mode=fencing)
        await last.send(b"!")
        with pytest.raises(ScalableTopicError):
            await third.send(b"?")


async def values_as_json(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        consumer = await client.queue_consumer(topic, "s", schema=schemas.json(Order))
        producer = await client.create_producer(topic, schema=schemas.json(Order))
        await producer.send(Order(3, "note"))
        assert (await consumer.receive(ARRIVES_MS)).value == Order(3, "note")

        numbers = await client.create_producer(topic, schema=schemas.int64)
        with pytest.raises(ScalableTopicError, match=r"(?i)schema"):
            await numbers.send(1)


async def values_in_versions_of_avro(server: Server, name: str) -> None:
    topic = await server.create(name)
    older, newer = schemas.avro(Numbered), schemas.avro(Order)
    async with server.client() as client:
        for schema, value in (
            (older, Numbered(1)),
            (newer, Order(2, "note")),
            (older, Numbered(3)),
        ):
            producer: st.Producer[object] = await client.create_producer(topic, schema=schema)
            await producer.send(value)
        orders = await client.reader(topic, schema=newer)
        found = [(await orders.receive(ARRIVES_MS)).value for _ in range(3)]
        assert found == [Order(1), Order(2, "note"), Order(3)]

        numbers = await client.queue_consumer(topic, "s", schema=older, initial_position=EARLIEST)
        assert {(await numbers.receive(ARRIVES_MS)).value.number for _ in range(3)} == {1, 2, 3}


async def a_classic_topic_under_its_own_name(server: Server, name: str) -> None:
    topic = await server.create_partitioned(name, 3)
    async with server.client() as client:
        consumer = await client.queue_consumer(topic, "s")
        producer = await client.create_producer(topic)
        ids = await send(producer, 0, 60)

        assert await take(consumer, 60) == expected(0, 60)
        for number, each in enumerate(ids):
            partition = classic_partition(key_hash(f"k{number % KEYS}"), 3)
            assert each.segment == f"{topic}-partition-{partition}"


async def a_missing_topic_is_not_found(server: Server, name: str) -> None:
    async with server.client() as client:
        for kind in (client.create_producer, client.reader):
            with pytest.raises(TopicNotFound):
                await kind(f"topic://public/default/{name}", create_if_missing=False)


async def many_producers_share_connections(server: Server, name: str) -> None:
    topic = await server.create(name)
    async with server.client() as client:
        producers = await asyncio.gather(*(client.create_producer(topic) for _ in range(50)))
        await asyncio.gather(*(each.send(b"x") for each in producers))

        # The address before it may have any digits.
        assert ", 50 connections" not in repr(client)
        reader = await client.reader(topic)
        for _ in range(50):
            await reader.receive(ARRIVES_MS)


async def until(condition: Callable[[], object]) -> None:
    for _ in range(3_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not come true")


CHECKS: tuple[Check, ...] = (
    what_a_message_carries,
    batches_in_every_compression,
    large_messages_in_chunks,
    keys_over_several_segments,
    a_queue_is_shared_and_what_was_not_acknowledged_comes_again,
    a_negative_acknowledgement_brings_a_message_again,
    acknowledgements_are_kept,
    a_new_subscription_begins_at_its_initial_position,
    a_reader_goes_on_behind_its_checkpoint,
    a_reader_knows_whether_there_is_more,
    reading_begins_at_a_time,
    a_stream_acknowledges_all_before_a_message,
    streams_share_the_segments,
    a_queue_follows_the_topics_of_a_namespace,
    a_stream_of_a_namespace_acknowledges_in_all_topics,
    readers_of_a_group_share_the_segments,
    queues_and_readers_over_splits,
    streams_over_splits,
    a_message_is_delivered_later,
    one_exclusive_producer_at_a_time,
    values_as_json,
    values_in_versions_of_avro,
    a_classic_topic_under_its_own_name,
    a_missing_topic_is_not_found,
    many_producers_share_connections,
)
