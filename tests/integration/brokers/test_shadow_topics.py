"""Shadow topics: stock Python clients, and a source and its shadow at different brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest
from pulsar.schema import AvroSchema, Record, String

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from protos.nextgen.v1 import topic_admin_pb2 as admin
from protos.pulsar import PulsarApi_pb2 as protocol
from tests.support.callers.stock_client import (
    RECEIVE_MS,
    SMALL,
    PulsarSystem,
    nothing_arrives,
    numbered,
    read,
    read_all,
    received,
    running_system,
    send_all,
    texts,
)

pytestmark = pytest.mark.integration

SOURCE = "persistent://public/default/orders"
EARLIEST = pulsar.InitialPosition.Earliest
KINDS = [
    pulsar.ConsumerType.Exclusive,
    pulsar.ConsumerType.Shared,
    pulsar.ConsumerType.Failover,
    pulsar.ConsumerType.KeyShared,
]
LARGE_BYTES = 200_000
"""More than the source sends along: read from its files."""

COMES_ABOUT_S = 30


class Order(Record):
    item = String()


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    with running_system(tmp_path_factory.mktemp("cluster"), SMALL) as system:
        yield system


def shadow_of(system: PulsarSystem, source: str, *, partitions: int = 0) -> str:
    """Create a source and a shadow of it; return the shadow's name."""
    system.create_topic(source, partitions=partitions)
    shadow = f"{source}-shadow"
    system.create_shadow(shadow, source)
    return shadow


def put_apart(system: PulsarSystem, source: str, shadow: str) -> None:
    """Have different brokers serve the two."""
    if system.owner(source) == system.owner(shadow):
        system.move(shadow)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + COMES_ABOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ids(messages: list[pulsar.Message]) -> list[tuple[int, int]]:
    return [(each.message_id().ledger_id(), each.message_id().entry_id()) for each in messages]


def places(sent: list[pulsar.MessageId]) -> list[tuple[int, int]]:
    return [(each.ledger_id(), each.entry_id()) for each in sent]


def test_every_kind_of_subscription_reads_the_source_at_another_broker(system: PulsarSystem):
    source = f"{SOURCE}-kinds"
    shadow = shadow_of(system, source)
    put_apart(system, source, shadow)
    with system.client() as client:
        producer = client.create_producer(source, batching_enabled=False)
        sent = send_all(producer, numbered(5))
        consumers = [
            client.subscribe(shadow, f"sub-{kind}", consumer_type=kind, initial_position=EARLIEST)
            for kind in KINDS
        ]
        sent += send_all(producer, numbered(5, first=5))

        for consumer in consumers:
            messages = received(consumer, 10)
            assert texts(messages) == numbered(10)
            assert ids(messages) == places(sent)
        assert nothing_arrives(consumers[0])
        assert system.operate(source, admin.GetStatsRequest()).subscriptions == []
        stats = system.operate(shadow, admin.GetStatsRequest())
        assert (stats.shadow.source, stats.shadow.away) == (source, "")


def test_seeks_readers_and_the_last_message_id_are_as_at_the_source(system: PulsarSystem):
    source = f"{SOURCE}-seeks"
    shadow = shadow_of(system, source)
    put_apart(system, source, shadow)
    with system.client() as client:
        producer = client.create_producer(source, batching_enabled=False)
        sent = send_all(producer, numbered(4))
        time.sleep(0.05)
        later_ms = int(time.time() * 1_000)
        time.sleep(0.05)
        sent += send_all(producer, numbered(4, first=4))
        consumer = client.subscribe(shadow, "sub", initial_position=EARLIEST)
        assert texts(received(consumer, 8)) == numbered(8)

        last = consumer.get_last_message_id()
        assert places([last]) == places(sent[-1:])
        consumer.seek(sent[2])
        assert texts(received(consumer, 5)) == numbered(5, first=3), "behind it, as clients do"
        consumer.seek(later_ms)
        assert texts(received(consumer, 4)) == numbered(4, first=4)
        consumer.seek(pulsar.MessageId.earliest)
        assert texts(received(consumer, 8)) == numbered(8)

        reader = client.create_reader(shadow, pulsar.MessageId.earliest)
        assert texts(read_all(reader)) == numbered(8)
        from_third = client.create_reader(shadow, sent[2], start_message_id_inclusive=True)
        assert texts(read(from_third, 1)) == numbered(1, first=2)
        send_all(producer, numbered(1, first=8))
        assert texts(read(reader, 1)) == numbered(1, first=8)


def test_the_schema_is_the_sources_and_producers_are_refused(system: PulsarSystem):
    source = f"{SOURCE}-schema"
    shadow = shadow_of(system, source)
    with system.client() as client:
        client.create_producer(source, schema=AvroSchema(Order)).send(Order(item="nut"))
        consumer = client.subscribe(
            shadow, "sub", schema=AvroSchema(Order), initial_position=EARLIEST
        )
        assert consumer.receive(timeout_millis=RECEIVE_MS).value().item == "nut"
        with pytest.raises(pulsar.PulsarException, match="NotAllowed"):
            client.create_producer(shadow)
        with pytest.raises(pulsar.PulsarException, match="NotAllowed"):
            client.create_producer(shadow, schema=AvroSchema(Order))
    (version,) = system.operate(shadow, admin.ListSchemasRequest()).versions
    assert version == system.operate(source, admin.ListSchemasRequest()).versions[0]
    other = admin.TopicSchema(name="other", kind=protocol.Schema.String)
    for write in (
        admin.AddSchemaRequest(schema=other),
        admin.DeleteSchemaRequest(),
        admin.TerminateRequest(),
    ):
        with pytest.raises(Refused) as refused:
            system.operate(shadow, write)
        assert refused.value.code == RejectionCode.NOT_ALLOWED


def test_large_messages_and_batches_come_whole(system: PulsarSystem):
    source = f"{SOURCE}-large"
    shadow = shadow_of(system, source)
    put_apart(system, source, shadow)
    with system.client() as client:
        consumer = client.subscribe(shadow, "sub", initial_position=EARLIEST)
        large = client.create_producer(source, batching_enabled=False)
        batches = client.create_producer(
            source, batching_enabled=True, batching_max_publish_delay_ms=50
        )
        large.send(b"x" * LARGE_BYTES)
        for text in numbered(10):
            batches.send_async(text.encode(), None)
        batches.flush()
        large.send(b"y" * LARGE_BYTES)

        first, *batch, last = received(consumer, 12)
        assert (first.data(), last.data()) == (b"x" * LARGE_BYTES, b"y" * LARGE_BYTES)
        assert texts(batch) == numbered(10)


def test_partitions_follow_their_own(system: PulsarSystem):
    source = f"{SOURCE}-partitioned"
    shadow = shadow_of(system, source, partitions=3)
    with system.client() as client:
        consumer = client.subscribe(shadow, "sub", initial_position=EARLIEST)
        producer = client.create_producer(source, batching_enabled=False)
        for text in numbered(12):
            producer.send(text.encode())

        assert sorted(texts(received(consumer, 12))) == sorted(numbered(12))


def test_a_shadow_goes_on_when_source_and_shadow_move_and_brokers_die(system: PulsarSystem):
    source = f"{SOURCE}-moving"
    shadow = shadow_of(system, source)
    put_apart(system, source, shadow)
    with system.client() as client:
        producer = client.create_producer(source, batching_enabled=False)
        consumer = client.subscribe(shadow, "sub", initial_position=EARLIEST)
        count = 0

        def passes_on(number: int = 10) -> None:
            nonlocal count
            send_all(producer, numbered(number, first=count))
            seen: list[str] = []
            while not seen or seen[-1] != numbered(1, first=count + number - 1)[0]:
                seen += texts(received(consumer, 1))
            # What was delivered and not acknowledged durably may come again, from the beginning.
            new = [each for each in dict.fromkeys(seen) if each in numbered(number, first=count)]
            assert new == numbered(number, first=count)
            count += number

        passes_on()
        system.move(source)
        passes_on()
        system.move(shadow)
        passes_on()
        victim = system.owner(source)
        system.kill(victim)
        passes_on()
        system.start(victim)
        system.move(shadow)
        victim = system.owner(shadow)
        system.kill(victim)
        passes_on()
        system.start(victim)
        passes_on()


def test_an_unlisted_shadow_gets_nothing_new(system: PulsarSystem):
    source = f"{SOURCE}-unlisted"
    shadow = shadow_of(system, source)
    with system.client() as client:
        consumer = client.subscribe(shadow, "sub", initial_position=EARLIEST)
        producer = client.create_producer(source, batching_enabled=False)
        send_all(producer, numbered(1))
        assert texts(received(consumer, 1)) == numbered(1)

        system.list_shadows(source, [])
        until(lambda: system.operate(shadow, admin.GetStatsRequest()).shadow.away)
        send_all(producer, numbered(1, first=1))
        assert nothing_arrives(consumer)
        system.list_shadows(source, [shadow])

        assert texts(received(consumer, 1)) == numbered(1, first=1)


def test_a_shadow_has_no_bytes_of_the_source_on_disk(system: PulsarSystem):
    source = f"{SOURCE}-disk"
    shadow = shadow_of(system, source)
    with system.client() as client:
        consumer = client.subscribe(shadow, "sub", initial_position=EARLIEST)
        producer = client.create_producer(source, batching_enabled=False)
        for number in range(20):
            producer.send(b"%05d" % number * 10_000)
        received(consumer, 20)

    def entries(topic: str) -> int:
        folder: Path = system.ledger_folder(topic)
        return sum(path.stat().st_size for path in folder.glob("*.entries"))

    assert entries(source) > 20 * 50_000
    assert entries(shadow) == 0
