"""Shadows whose sources are at other brokers, as processes: moved, killed, started again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pulsar
import pytest

from nextgen.client import BlockingClient
from nextgen.kernel.governance.policies import Policies, Retention
from nextgen.kernel.limits.shadow import FEED_REPORT_MS
from protos.nextgen.v1 import topic_admin_pb2 as admin
from tests.support.callers.moved_load import Load
from tests.support.callers.stock_client import (
    ADMIN_TIMEOUT_MS,
    PulsarSystem,
    nothing_arrives,
    numbered,
    received,
    running_system,
    send_all,
    texts,
)
from tests.support.processes.local_cluster import ClusterSize

pytestmark = pytest.mark.integration

SOURCE = "persistent://public/default/source"
EARLIEST = pulsar.InitialPosition.Earliest
SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=3, shards=2)
SENDS_BETWEEN = 50
WAIT_S_MAX = 60


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    with running_system(tmp_path_factory.mktemp("cluster"), SIZE) as system:
        yield system


@pytest.fixture
def client(system: PulsarSystem) -> Iterator[BlockingClient]:
    endpoints = system.discovery_endpoints
    with BlockingClient(endpoints, timeout_ms=ADMIN_TIMEOUT_MS, effective=True) as client:
        yield client


def with_shadow(system: PulsarSystem, client: BlockingClient, name: str) -> tuple[str, str]:
    """Create a source, and a shadow that another broker serves; return their names."""
    source, shadow = f"{SOURCE}-{name}", f"{SOURCE}-{name}-shadow"
    system.create_topic(source)
    client.create_shadow(shadow, source)
    apart(system, source, shadow)
    return source, shadow


def apart(system: PulsarSystem, source: str, shadow: str) -> None:
    if system.owner(source) == system.owner(shadow):
        system.move(shadow)
    assert system.owner(source) != system.owner(shadow)


def move(system: PulsarSystem, topic: str, to: str) -> None:
    system.repeated_command("move", topic, "--to", to)
    assert system.owner(topic) == to


def positions(messages: list[pulsar.Message]) -> list[tuple[int, int]]:
    ids = [message.message_id() for message in messages]
    return [(each.ledger_id(), each.entry_id()) for each in ids]


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not holds():
        assert time.monotonic() < deadline, "it has not come about"
        time.sleep(0.05)


def test_a_shadow_at_another_broker_shows_its_source_s_messages(
    system: PulsarSystem, client: BlockingClient
) -> None:
    source, shadow = with_shadow(system, client, "plain")
    with system.client() as stock:
        producer = stock.create_producer(source, batching_enabled=False)
        before = send_all(producer, numbered(10))
        consumer = stock.subscribe(shadow, "sub", initial_position=EARLIEST)
        older = received(consumer, 10)
        after = send_all(producer, numbered(10, first=10))
        newer = received(consumer, 10)

        assert texts(older + newer) == numbered(20)
        sent = [(each.ledger_id(), each.entry_id()) for each in before + after]
        assert positions(older + newer) == sent
        assert nothing_arrives(consumer)
    stats = system.operate(source, admin.GetStatsRequest())
    (feed,) = stats.feeds
    assert (feed.shadow, feed.broker_id) == (shadow, system.owner(shadow))
    assert feed.entries_out >= 10
    assert not stats.subscriptions, "nothing of the shadow is at its source"
    files = list(system.ledger_folder(shadow).rglob("*.entries"))
    assert sum(each.stat().st_size for each in files) == 0


def test_a_shadow_and_its_source_at_one_broker(
    system: PulsarSystem, client: BlockingClient
) -> None:
    source, shadow = with_shadow(system, client, "together")
    move(system, shadow, system.owner(source))
    with system.client() as stock:
        consumer = stock.subscribe(shadow, "sub", initial_position=EARLIEST)
        producer = stock.create_producer(source, batching_enabled=False)
        send_all(producer, numbered(10))

        assert texts(received(consumer, 10)) == numbered(10)


def test_a_source_moves_to_every_broker_and_its_shadow_misses_nothing(
    system: PulsarSystem, client: BlockingClient
) -> None:
    source, shadow = with_shadow(system, client, "moving")
    with system.client() as stock:
        consumer = stock.subscribe(shadow, "sub", initial_position=EARLIEST)
        producer = stock.create_producer(source, batching_enabled=False)
        load = Load(producer, consumer)
        load.wait_for_sends(SENDS_BETWEEN)
        for _ in range(2):
            # Also to the shadow's own broker, and the shadow to the source's.
            for broker_id in system.broker_addresses:
                if broker_id != system.owner(source):
                    move(system, source, broker_id)
                    load.wait_for_sends(SENDS_BETWEEN)
            system.move(shadow)
            load.wait_for_sends(SENDS_BETWEEN)
        load.stop()

    assert list(dict.fromkeys(load.received)) == load.acknowledged
    assert len(set(load.message_ids)) == len(load.message_ids)


@pytest.mark.slow
def test_brokers_of_source_and_shadow_are_killed_and_nothing_is_missing(
    system: PulsarSystem, client: BlockingClient
) -> None:
    source, shadow = with_shadow(system, client, "killed")
    with system.client() as stock:
        consumer = stock.subscribe(shadow, "sub", initial_position=EARLIEST)
        producer = stock.create_producer(
            source, batching_enabled=False, send_timeout_millis=WAIT_S_MAX * 1_000
        )
        load = Load(producer, consumer)
        load.wait_for_sends(SENDS_BETWEEN)
        for topic in (source, shadow, source):
            victim = system.owner(topic)
            system.kill(victim)
            load.wait_for_sends(SENDS_BETWEEN)
            system.start(victim)
            apart(system, source, shadow)
            load.wait_for_sends(SENDS_BETWEEN)
        load.stop()

    assert list(dict.fromkeys(load.received)) == load.acknowledged


def test_an_unlisted_shadow_gets_nothing_new_until_it_is_listed_again(
    system: PulsarSystem, client: BlockingClient
) -> None:
    source, shadow = with_shadow(system, client, "unlisted")
    with system.client() as stock:
        consumer = stock.subscribe(shadow, "sub", initial_position=EARLIEST)
        producer = stock.create_producer(source, batching_enabled=False)
        send_all(producer, numbered(3))
        assert texts(received(consumer, 3)) == numbered(3)

        client.remove_shadows(source, [shadow])
        eventually(lambda: not system.operate(source, admin.GetStatsRequest()).feeds)
        send_all(producer, numbered(3, first=3))
        assert nothing_arrives(consumer)
        client.set_shadows(source, [shadow])

        assert texts(received(consumer, 3)) == numbered(3, first=3)


def test_a_source_keeps_what_its_shadow_has_not_acknowledged_if_it_is_told_to(
    system: PulsarSystem, client: BlockingClient
) -> None:
    source, shadow = with_shadow(system, client, "kept")
    keeping = Policies(retention=Retention(0, 0), shadow_topics=(shadow,), shadow_backlog_keep=True)
    client.set_policies(source, keeping)
    with system.client() as stock:
        consumer = stock.subscribe(shadow, "sub", initial_position=EARLIEST)
        producer = stock.create_producer(source, batching_enabled=False)
        send_all(producer, numbered(3))
        # Each owner writes ledgers of its own, and whole ones are dropped.
        system.move(source)
        send_all(producer, numbered(3, first=3))
        messages = received(consumer, 6, ack=False)
        first = positions(messages)[0][0]
        system.operate(shadow, admin.TrimRequest())
        time.sleep(1.5 * FEED_REPORT_MS / 1_000)
        system.operate(source, admin.TrimRequest())
        assert system.operate(source, admin.GetStatsRequest()).first.ledger_id == first
        system.move(source)
        system.operate(source, admin.TrimRequest())
        assert system.operate(source, admin.GetStatsRequest()).first.ledger_id == first

        consumer.acknowledge_cumulative(messages[-1])

        def is_dropped() -> bool:
            system.operate(shadow, admin.TrimRequest())
            system.operate(source, admin.TrimRequest())
            return system.operate(source, admin.GetStatsRequest()).first.ledger_id > first

        eventually(is_dropped)
