"""The stock Python client and embedded brokers, as processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pulsar
import pytest

from nextgen.pulsar.client import PulsarClientConnection
from protos.nextgen.v1 import topic_admin_pb2 as admin
from protos.nextgen.v1.broker_service_pb2 import MessagePosition
from protos.pulsar import PulsarApi_pb2 as protocol
from tests.support.callers.moved_load import MOVE_TIMEOUT_S, Load
from tests.support.callers.old_client import OldProducer
from tests.support.callers.stock_client import (
    SMALL,
    PulsarSystem,
    nothing_arrives,
    numbered,
    received,
    running_system,
    send_all,
    texts,
)
from tests.support.processes.local_cluster import MINIMAL

pytestmark = pytest.mark.integration

TOPIC = "persistent://public/default/orders"
MOVES = 3
SENDS_BETWEEN_MOVES = 50
DELETED_S_MAX = 60


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    with running_system(tmp_path_factory.mktemp("cluster"), SMALL) as system:
        yield system


def test_a_smallest_cluster_carries_messages_and_keeps_them_over_a_restart(tmp_path: Path):
    with running_system(tmp_path, MINIMAL) as system:
        with system.client() as client:
            consumer = client.subscribe(
                TOPIC, "sub", initial_position=pulsar.InitialPosition.Earliest
            )
            producer = client.create_producer(TOPIC)
            send_all(producer, numbered(20))
            assert texts(received(consumer, 10)) == numbered(10)

        system.kill("broker-1")
        system.start("broker-1")

        with system.client() as client:
            consumer = client.subscribe(TOPIC, "sub")
            seen = texts(received(consumer, 10))
            assert seen == numbered(10, first=10)
            assert nothing_arrives(consumer)


@pytest.mark.slow
def test_a_topic_moves_under_a_live_producer_and_consumer(system: PulsarSystem):
    topic = f"{TOPIC}-moving"
    with system.client() as client:
        consumer = client.subscribe(topic, "sub", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(topic, batching_enabled=False)
        load = Load(producer, consumer)
        owners = [system.owner(topic)]
        for _ in range(MOVES):
            load.wait_for_sends(SENDS_BETWEEN_MOVES)
            system.move(topic)
            owners.append(system.owner(topic))
        load.wait_for_sends(SENDS_BETWEEN_MOVES)
        load.stop()

    assert all(one != other for one, other in pairwise(owners))
    # What was delivered and not acknowledged when it moved comes again; nothing is missing.
    first_seen = list(dict.fromkeys(load.received))
    assert first_seen == load.acknowledged
    assert load.message_ids == sorted(load.message_ids)
    assert len(set(load.message_ids)) == len(load.message_ids)


def test_a_client_that_is_redirected_by_close_makes_no_lookup(system: PulsarSystem):
    topic = f"{TOPIC}-told"
    with system.client() as client:
        producer = client.create_producer(topic, batching_enabled=False)
        producer.send(b"0")
        before = system.pulsar_lookups()
        for number in range(MOVES):
            owner = system.owner(topic)
            system.repeated_command("topics", "move", topic)
            assert system.owner(topic) != owner
            producer.send(b"%d" % (number + 1))

        assert system.pulsar_lookups() == before


def test_a_terminated_topic_refuses_producers_and_stays_so_when_it_moves(system: PulsarSystem):
    topic = f"{TOPIC}-terminated"
    with system.client() as client:
        consumer = client.subscribe(topic, "sub", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(topic, batching_enabled=False)
        ids = send_all(producer, numbered(3))

        last = system.operate(topic, admin.TerminateRequest())

        assert (last.position.ledger_id, last.position.entry_id) == (
            ids[-1].ledger_id(),
            ids[-1].entry_id(),
        )
        with pytest.raises(pulsar.PulsarException):
            producer.send(b"one more")
        system.move(topic)
        with pytest.raises(pulsar.TopicTerminated):
            client.create_producer(topic)
        assert texts(received(consumer, 3)) == numbered(3)
        assert nothing_arrives(consumer)
    assert system.operate(topic, admin.TerminateRequest()) == last


def test_operators_set_cursors_of_stock_consumers(system: PulsarSystem):
    topic = f"{TOPIC}-operated"
    system.create_topic(topic)
    system.operate(topic, admin.CreateSubscriptionRequest(subscription="sub"))
    with system.client() as client:
        ids = send_all(client.create_producer(topic, batching_enabled=False), numbered(6))
        system.operate(topic, admin.SkipMessagesRequest(subscription="sub", entries=2))
        consumer = client.subscribe(topic, "sub")
        assert texts(received(consumer, 4)) == numbered(4, first=2)

        third = MessagePosition(ledger_id=ids[3].ledger_id(), entry_id=ids[3].entry_id())
        place = admin.TopicPlace(position=third)
        system.operate(topic, admin.ResetCursorRequest(subscription="sub", place=place))

        assert texts(received(consumer, 3)) == numbered(3, first=3)
        (row,) = system.operate(topic, admin.GetStatsRequest()).subscriptions
        assert (row.name, len(row.rows), row.rows[0].messages_out) == ("sub", 1, 3)
        assert row.rows[0].client.client_version.startswith("Pulsar")


def test_a_deleted_topic_leaves_no_messages_on_disk(system: PulsarSystem):
    topics = [f"{TOPIC}-gone", f"{TOPIC}-kept"]
    with system.client() as client:
        for topic in topics:
            send_all(client.create_producer(topic), numbered(3))
    gone, kept = (system.ledger_folder(topic) for topic in topics)
    assert list(gone.glob("*.entries"))
    assert list(kept.glob("*.entries"))

    system.command("topics", "delete", topics[0])

    deadline = time.monotonic() + DELETED_S_MAX
    while gone.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert list(kept.glob("*.entries"))


def test_a_client_too_old_for_a_redirect_makes_one_lookup(system: PulsarSystem):
    topic = f"{TOPIC}-old"
    system.create_topic(topic)
    with OldProducer(system.service_url, topic) as producer:
        stored = [producer.send()]
        for number in range(MOVES):
            system.move(topic)
            stored.append(producer.send())
            assert producer.lookups == number + 2

    assert all(url.startswith("pulsar://") for url in producer.closed_urls)
    assert len(producer.closed_urls) == MOVES
    assert stored == sorted(set(stored))


def test_an_unloaded_topic_is_assigned_again_and_has_all_its_messages(system: PulsarSystem):
    topic = f"{TOPIC}-unloaded"
    with system.client() as client:
        producer = client.create_producer(topic, batching_enabled=False)
        send_all(producer, numbered(5))

        (told,) = system.repeated_command("topics", "unload", topic)
        send_all(producer, numbered(5, first=5))

        assert [each["unassigned"] for each in told["topics"]] == [True]
        consumer = client.subscribe(topic, "sub", initial_position=pulsar.InitialPosition.Earliest)
        assert texts(received(consumer, 10)) == numbered(10)


def test_a_topic_under_load_is_deleted_by_force_only_and_loses_nothing_silently(
    system: PulsarSystem,
):
    """Refused, it keeps everything. By force, each acknowledged message is of the deleted topic or
    of the next one: the next one begins with a message, and lacks none behind it."""
    topic = f"{TOPIC}-deleted"
    with system.client() as client:
        producer = client.create_producer(topic, batching_enabled=False)
        client.subscribe(topic, "sub")
        load = Load(producer, None)
        load.wait_for_sends(SENDS_BETWEEN_MOVES)

        refused = system.refused_command("topics", "delete", topic)
        load.wait_for_sends(SENDS_BETWEEN_MOVES)
        before = list(load.acknowledged)
        (deleted,) = system.command("topics", "delete", topic, "--force")
        load.wait_for_sends(SENDS_BETWEEN_MOVES)
        load.stop()
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        kept = []
        while reader.has_message_available():
            kept.append(int(reader.read_next().data()))

    assert "is in use: 1 producers, 1 consumers, 1 subscriptions" in refused
    assert deleted["id"]
    assert load.acknowledged[: len(before)] == before == list(range(len(before)))
    assert kept, "it was created anew"
    assert kept == load.acknowledged[-len(kept) :]
    assert kept[0] > before[-1], "what was acknowledged before went with the topic"


def test_a_topic_with_a_subscription_and_no_client_is_deleted_by_force_only(system: PulsarSystem):
    topic = f"{TOPIC}-subscribed"
    with system.client() as client:
        client.subscribe(topic, "sub")
    system.repeated_command("topics", "unload", topic)

    refused = system.refused_command("topics", "delete", topic)
    system.repeated_command("topics", "unload", topic)
    system.command("topics", "delete", topic, "--force")

    assert "1 subscriptions" in refused
    assert "there is no topic" in system.refused_command("topics", "get", topic)


async def test_a_broker_that_does_not_own_a_topic_sends_its_clients_away(system: PulsarSystem):
    topic = f"{TOPIC}-elsewhere"
    system.create_topic(topic)
    owner = system.owner(topic)
    other = next(name for name in system.broker_addresses if name != owner)
    host, _, port = system.broker_addresses[other].partition(":")

    timeout_ms = MOVE_TIMEOUT_S * 1_000
    async with await PulsarClientConnection.open(
        host, int(port), timeout_ms=timeout_ms
    ) as connection:
        producer = await connection.request(
            protocol.BaseCommand(
                type=protocol.BaseCommand.PRODUCER,
                producer=protocol.CommandProducer(topic=topic, producer_id=1, request_id=1),
            ),
            timeout_ms=timeout_ms,
        )
        consumer = await connection.request(
            protocol.BaseCommand(
                type=protocol.BaseCommand.SUBSCRIBE,
                subscribe=protocol.CommandSubscribe(
                    topic=topic, subscription="s", subType=0, consumer_id=1, request_id=2
                ),
            ),
            timeout_ms=timeout_ms,
        )
        lookup = await connection.request(
            protocol.BaseCommand(
                type=protocol.BaseCommand.LOOKUP,
                lookupTopic=protocol.CommandLookupTopic(topic=topic, request_id=3),
            ),
            timeout_ms=timeout_ms,
        )

    for refused in (producer, consumer):
        assert refused.error.error == protocol.ServiceNotReady
        assert owner in refused.error.message
    address = system.broker_addresses[owner]
    assert lookup.lookupTopicResponse.brokerServiceUrl == f"pulsar://{address}"


@pytest.mark.parametrize("kind", ["producer", "consumer"])
async def test_a_topic_created_on_demand_is_served_by_the_broker_that_its_client_chose(
    system: PulsarSystem, kind: str
):
    """A client that never looks a name up again passes at its first attempt, at any broker."""
    timeout_ms = MOVE_TIMEOUT_S * 1_000
    chosen = [*system.broker_addresses] * 4  # A placement by chance would be right once in 256.
    owners = []
    for number, broker_id in enumerate(chosen):
        topic = f"{TOPIC}-created-by-a-{kind}-{number}"
        producer = protocol.BaseCommand(
            type=protocol.BaseCommand.PRODUCER,
            producer=protocol.CommandProducer(topic=topic, producer_id=1, request_id=1),
        )
        consumer = protocol.BaseCommand(
            type=protocol.BaseCommand.SUBSCRIBE,
            subscribe=protocol.CommandSubscribe(
                topic=topic, subscription="s", subType=0, consumer_id=1, request_id=1
            ),
        )
        host, _, port = system.broker_addresses[broker_id].partition(":")
        async with await PulsarClientConnection.open(
            host, int(port), timeout_ms=timeout_ms
        ) as connection:
            command = producer if kind == "producer" else consumer
            answer = await connection.request(command, timeout_ms=timeout_ms)

        assert not answer.HasField("error"), answer
        owners.append(system.owner(topic))

    assert owners == chosen


def test_a_client_that_was_given_a_broker_finds_its_topics(system: PulsarSystem):
    topic = f"{TOPIC}-by-a-broker"
    system.create_topic(topic)
    owner = system.owner(topic)
    other = next(name for name in system.broker_addresses if name != owner)

    with system.client(f"pulsar://{system.broker_addresses[other]}") as client:
        producer = client.create_producer(topic)
        consumer = client.subscribe(topic, "sub", initial_position=pulsar.InitialPosition.Earliest)
        send_all(producer, numbered(3))

        assert texts(received(consumer, 3)) == numbered(3)
