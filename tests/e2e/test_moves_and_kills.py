"""Stock clients at work while topics move and processes die."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition, MessageId

from tests.support.callers.stock_client import (
    RECEIVE_MS,
    ClusterSize,
    PulsarSystem,
    numbered,
    read_all,
    received,
    running_system,
    send_all,
    texts,
)
from tests.support.callers.stock_load import (
    SEND_TIMEOUT_MS,
    SteadyProducer,
    assert_stored_once_in_order,
)

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=2, brokers=3, shards=2)
MOVES = 3
MOVE_GAP_MS_MAX = 1_500
"""For the shortest of the gaps: one move may meet a machine that stands still for a moment."""

KILL_GAP_MS_MAX = 15_000
"""For one trial on a machine that the processes of all tests share: the stock client doubles its
pauses, so that one who stands still for 3 s may cost it the one of 6 s. The goal of 1.5 s at p99 is
measured by ``nextgen perf broker-kill``."""

IN_FLIGHT_AT_KILL = 100


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    """A cluster of its own: these tests kill what others rely on."""
    with running_system(tmp_path_factory.mktemp("cluster"), SIZE) as running:
        yield running


@pytest.fixture
def producer(client: pulsar.Client, topic: str) -> pulsar.Producer:
    return client.create_producer(
        topic, send_timeout_millis=SEND_TIMEOUT_MS, max_pending_messages=5_000
    )


def stored_numbers(system: PulsarSystem, topic: str) -> list[int]:
    """Return what a client that knows nothing yet finds in the topic."""
    with system.client() as client:
        return [
            int(one.data()) for one in read_all(client.create_reader(topic, MessageId.earliest))
        ]


def consumed_numbers(consumer: pulsar.Consumer, last: int) -> list[int]:
    """Receive up to a number; a message that came twice counts once."""
    numbers: dict[int, None] = {}
    while last not in numbers:
        (message,) = received(consumer, 1)
        numbers[int(message.data())] = None
    return list(numbers)


def test_a_topic_moves_under_load_and_nothing_is_lost(
    system: PulsarSystem, client: pulsar.Client, producer: pulsar.Producer, topic: str
):
    consumer = client.subscribe(topic, "all", initial_position=InitialPosition.Earliest)
    owners = [system.owner(topic)]

    gaps_ms = []
    with SteadyProducer(producer, in_flight_max=200, pause_ms=1) as load:
        load.wait_acknowledged(100)
        for _ in range(MOVES):
            load.outcome.gap_ms_max = 0.0
            system.move(topic)
            owners.append(system.owner(topic))
            load.wait_acknowledged(100)
            gaps_ms.append(load.outcome.gap_ms_max)

    outcome = load.outcome
    assert all(before != after for before, after in itertools.pairwise(owners)), owners
    assert outcome.failed == {}
    assert_stored_once_in_order(stored_numbers(system, topic), outcome)
    assert consumed_numbers(consumer, outcome.sent - 1) == list(range(outcome.sent))
    print(f"longest gaps of {MOVES} moves: {[round(gap) for gap in gaps_ms]} ms")
    assert min(gaps_ms) < MOVE_GAP_MS_MAX


def test_consumers_go_on_after_a_move_where_they_were(
    system: PulsarSystem, client: pulsar.Client, producer: pulsar.Producer, topic: str
):
    kinds = {"one": ConsumerType.Exclusive, "turns": ConsumerType.Failover}
    consumers = {name: client.subscribe(topic, name, kind) for name, kind in kinds.items()}
    reader = client.create_reader(topic, MessageId.latest)
    send_all(producer, numbered(10))
    for consumer in consumers.values():
        received(consumer, 10)
    assert texts(read_all(reader)) == numbered(10)

    system.move(topic)
    send_all(producer, numbered(10, first=10))

    for consumer in consumers.values():
        arrived: list[str] = []
        while not arrived or arrived[-1] != "message-19":
            arrived += texts(received(consumer, 1))
        assert arrived[-10:] == numbered(10, first=10)
    assert texts([reader.read_next(timeout_millis=RECEIVE_MS) for _ in range(10)]) == numbered(
        10, first=10
    )


def test_a_broker_is_killed_with_sends_in_flight_and_nothing_is_lost(
    system: PulsarSystem, client: pulsar.Client, producer: pulsar.Producer, topic: str
):
    consumer = client.subscribe(topic, "all", initial_position=InitialPosition.Earliest)
    owner = system.owner(topic)

    with SteadyProducer(producer, in_flight_max=1_000) as load:
        load.wait_acknowledged(1_000)
        in_flight = load.wait_in_flight(IN_FLIGHT_AT_KILL)
        system.kill(owner)
        load.wait_acknowledged(2_000)
    system.start(owner)

    outcome = load.outcome
    assert outcome.failed == {}
    assert_stored_once_in_order(stored_numbers(system, topic), outcome)
    assert consumed_numbers(consumer, outcome.sent - 1) == list(range(outcome.sent))
    print(f"{in_flight} in flight at the kill, longest gap {outcome.gap_ms_max:.0f} ms")
    assert outcome.gap_ms_max < KILL_GAP_MS_MAX


def test_a_durable_cursor_survives_the_kill_of_its_broker(system: PulsarSystem, topic: str):
    with system.client() as client:
        consumer = client.subscribe(topic, "kept")
        send_all(client.create_producer(topic), numbered(10))
        received(consumer, 6)
    owner = system.owner(topic)

    system.kill(owner)

    with system.client() as client:
        assert texts(received(client.subscribe(topic, "kept"), 4)) == numbered(4, first=6)
    system.start(owner)
    assert system.owner(topic) != owner


def test_producing_goes_on_while_a_discovery_node_is_dead(system: PulsarSystem, topic: str):
    with system.client() as client:
        send_all(client.create_producer(topic), numbered(5))
    system.kill("discovery-1")

    with system.client() as client:
        producer = client.create_producer(topic)
        send_all(producer, numbered(5, first=5))
        system.start("discovery-1")
        send_all(producer, numbered(5, first=10))
        assert texts(read_all(client.create_reader(topic, MessageId.earliest))) == numbered(15)


def test_what_was_acknowledged_is_there_after_every_process_was_killed(
    system: PulsarSystem, topic: str
):
    with system.client() as client:
        consumer = client.subscribe(topic, "kept")
        send_all(client.create_producer(topic), numbered(20))
        received(consumer, 5)

    system.kill_all_and_restart()

    with system.client() as client:
        assert texts(received(client.subscribe(topic, "kept"), 15)) == numbered(15, first=5)
