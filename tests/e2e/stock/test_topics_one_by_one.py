"""Unmodified Apache Pulsar brokers serve topics that the cluster places one by one."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pulsar
import pytest
from pulsar import InitialPosition, MessageId

from tests.support.callers.foreign_client import require_tools
from tests.support.callers.stock_client import (
    ClusterSize,
    PulsarSystem,
    numbered,
    operated,
    read_all,
    received,
    send_all,
    texts,
)
from tests.support.callers.stock_load import (
    SEND_TIMEOUT_MS,
    SteadyProducer,
    assert_stored_once_in_order,
)
from tests.support.processes.local_cluster import blocking_cluster
from tests.support.stock.cluster import NODE, StockCluster
from tests.support.stock.plugin import command_of_tests, plugin_classpath

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=0, shards=1)
NAMESPACE = "acme/orders"
BROKERS = (1, 2)
MOVES = 10
MAVEN_S_MAX = 300
OWNER_S_MAX = 60
SESSION_OVER = "the session is over"


@dataclass
class World:
    """Both clusters, and the operator of each."""

    system: PulsarSystem
    stock: StockCluster

    def move(self, topic: str) -> str:
        """Have the other stock broker serve a topic; return that."""
        owner = self.system.owner(topic)
        (other,) = (node for node in map(NODE.format, BROKERS) if node != owner)
        self.system.repeated_command("move", topic, "--to", other)
        return other

    def number_of_owner(self, topic: str) -> int:
        """Return which stock broker serves a topic; it is assigned if that is idle."""
        (found,) = self.system.repeated_command("lookup", topic, "--fresh")
        return int(found["answers"][0]["broker_id"].rpartition("-")[2])

    def wait_other_owner(self, topic: str, former: int) -> None:
        """Return when another broker serves a topic than before."""
        deadline = time.monotonic() + OWNER_S_MAX
        while self.number_of_owner(topic) == former:
            assert time.monotonic() < deadline, f"{topic} is still at broker {former}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    classpath = plugin_classpath()
    with (
        blocking_cluster(tmp_path_factory.mktemp("cluster"), SIZE) as cluster,
        StockCluster(classpath, tmp_path_factory.mktemp("stock"), cluster) as stock,
        operated(cluster) as system,
    ):
        for number in BROKERS:
            stock.start_broker(number)
            stock.start_sidecar(number)
            stock.wait_commanded(number)
        stock.hand_over(NAMESPACE)
        system.create_namespace(NAMESPACE, {})
        yield World(system, stock)


@pytest.fixture
def client(world: World) -> Iterator[pulsar.Client]:
    """A stock client that knows the address of discovery and nothing else."""
    with world.system.client() as opened:
        yield opened


@pytest.fixture
def topics(world: World, client: pulsar.Client, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Two topics, of which Pulsar keeps all messages: a subscription has acknowledged none."""
    name = f"persistent://{NAMESPACE}/{request.node.name}"
    pair = f"{name}-a", f"{name}-b"
    world.system.create_topics(pair)
    for topic in pair:
        client.subscribe(topic, "keeps", initial_position=InitialPosition.Earliest).close()
    return pair


def stored(client: pulsar.Client, topic: str) -> list[str]:
    return texts(read_all(client.create_reader(topic, MessageId.earliest)))


def stored_numbers(client: pulsar.Client, topic: str) -> list[int]:
    return list(map(int, stored(client, topic)))


def test_a_topic_moves_alone_and_nothing_is_lost(
    world: World, client: pulsar.Client, topics: tuple[str, str]
) -> None:
    moved, other = topics
    producers = [
        client.create_producer(
            topic, send_timeout_millis=SEND_TIMEOUT_MS, max_pending_messages=5_000
        )
        for topic in topics
    ]
    consumer = client.subscribe(moved, "all", initial_position=InitialPosition.Earliest)
    owners, other_owner = [world.system.owner(moved)], world.system.owner(other)
    gaps_ms = []
    with (
        SteadyProducer(producers[0], in_flight_max=200, pause_ms=1) as load,
        SteadyProducer(producers[1], in_flight_max=50, pause_ms=5) as untouched,
    ):
        load.wait_acknowledged(100)
        for _ in range(MOVES):
            load.outcome.gap_ms_max = 0.0
            owners.append(world.move(moved))
            load.wait_acknowledged(100)
            gaps_ms.append(load.outcome.gap_ms_max)
        untouched.wait_acknowledged(100)

    assert all(before != after for before, after in itertools.pairwise(owners)), owners
    assert world.system.owner(other) == other_owner
    for topic, outcome in zip(topics, (load.outcome, untouched.outcome), strict=True):
        assert outcome.failed == {}
        assert_stored_once_in_order(stored_numbers(client, topic), outcome)
    numbers = dict.fromkeys(int(each.data()) for each in received(consumer, load.outcome.sent))
    assert list(numbers) == list(range(load.outcome.sent))
    print(f"gaps of {MOVES} moves: {sorted(map(round, gaps_ms))} ms")
    print(f"p50 {statistics.median(gaps_ms):.0f} ms, longest {max(gaps_ms):.0f} ms")
    print(f"longest gap of the other topic: {untouched.outcome.gap_ms_max:.0f} ms")


def test_brokers_own_lookups_agree_with_discovery(world: World, topics: tuple[str, str]) -> None:
    for topic in topics:
        path = topic.replace("://", "/")
        owner = world.number_of_owner(topic)
        for asked in BROKERS:
            located = world.stock.lookup(asked, path)
            assert located["brokerUrl"] == world.stock.url(owner), (topic, asked)


def test_other_namespaces_are_pulsars_as_before(world: World, client: pulsar.Client) -> None:
    """A namespace that is not handed over, at a broker and not through discovery."""
    topic = "persistent://acme/stays/by-bundle"
    world.stock.admin("PUT", "namespaces/acme/stays", {})
    with world.system.client(world.stock.url(1)) as stock_client:
        producer = stock_client.create_producer(topic)
        send_all(producer, numbered(10))
        reader = stock_client.create_reader(topic, MessageId.earliest)
        assert texts(read_all(reader)) == numbered(10)
    assert not world.system.has_topic(topic)
    bundles = [world.stock.lookup(asked, topic.replace("://", "/")) for asked in BROKERS]
    assert bundles[0] == bundles[1]


def test_unloading_a_bundle_of_a_namespace_that_is_handed_over_closes_nothing(
    world: World, client: pulsar.Client, topics: tuple[str, str]
) -> None:
    topic, _ = topics
    stats = f"{topic.replace('://', '/')}/stats"
    client.create_producer(topic)
    before = json.loads(world.stock.admin("GET", stats))["publishers"]
    bounds = json.loads(world.stock.admin("GET", f"namespaces/{NAMESPACE}"))["bundles"]

    for lower, upper in itertools.pairwise(bounds["boundaries"]):
        world.stock.admin("PUT", f"namespaces/{NAMESPACE}/{lower}_{upper}/unload")

    after = json.loads(world.stock.admin("GET", stats))["publishers"]
    assert len(before) == 1
    assert [each["connectedSince"] for each in after] == [before[0]["connectedSince"]]


def test_a_frozen_owner_acknowledges_nothing_behind_the_next_one(
    world: World, client: pulsar.Client, topics: tuple[str, str]
) -> None:
    """1. Owner A is stopped with messages in flight. 2. Its session ends. 3. B acknowledges.
    4. A goes on, with a client that is connected to nobody else. 5. Every acknowledged message is
    stored once, in order."""
    topic, _ = topics
    frozen = world.number_of_owner(topic)
    with world.system.client(world.stock.url(frozen)) as loyal:
        stale = loyal.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
        with SteadyProducer(stale, in_flight_max=200) as first:
            first.wait_acknowledged(200)
            world.stock.freeze(frozen)
            world.wait_other_owner(topic, frozen)
            successor = client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
            acknowledged = send_all(successor, numbered(10))
            world.stock.thaw(frozen)
            first.wait_acknowledged(200, timeout_s=60)

    contents = stored(client, topic)
    ours = [int(each) for each in contents if each.isdecimal()]
    assert first.outcome.failed == {}
    assert_stored_once_in_order(ours, first.outcome)
    assert [each for each in contents if not each.isdecimal()] == numbered(10)
    assert len(acknowledged) == 10
    world.stock.wait_commanded(frozen)


def test_a_broker_without_its_sidecar_gives_its_topics_up(
    world: World, client: pulsar.Client, topics: tuple[str, str]
) -> None:
    """The shard gives the topic to another broker, which opens it when its clients come: once the
    first one has waited for the session's time-out."""
    topic, _ = topics
    producer = client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
    left = world.number_of_owner(topic)
    ended = world.stock.logged(left, SESSION_OVER)
    with SteadyProducer(producer, in_flight_max=200, pause_ms=1) as load:
        load.wait_acknowledged(200)
        world.stock.sidecars[left].kill()
        world.wait_other_owner(topic, left)
        world.stock.wait_logged(left, SESSION_OVER, more_than=ended)
        load.wait_acknowledged(400, timeout_s=60)
    world.stock.start_sidecar(left)
    world.stock.wait_commanded(left)

    assert world.number_of_owner(topic) != left
    assert load.outcome.failed == {}
    assert_stored_once_in_order(stored_numbers(client, topic), load.outcome)
    print(f"longest gap: {load.outcome.gap_ms_max:.0f} ms")


def test_a_killed_brokers_topics_are_served_elsewhere(
    world: World, client: pulsar.Client, topics: tuple[str, str]
) -> None:
    topic, _ = topics
    producer = client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
    killed = world.number_of_owner(topic)
    with SteadyProducer(producer, in_flight_max=200, pause_ms=1) as load:
        load.wait_acknowledged(200)
        world.stock.brokers[killed].kill()
        load.wait_acknowledged(200, timeout_s=60)

    assert world.number_of_owner(topic) != killed
    assert load.outcome.failed == {}
    assert_stored_once_in_order(stored_numbers(client, topic), load.outcome)
    print(f"longest gap: {load.outcome.gap_ms_max:.0f} ms")


def test_the_plugins_own_tests_pass(tmp_path: Path) -> None:
    require_tools("java", "mvn")
    result = subprocess.run(
        command_of_tests(tmp_path), capture_output=True, text=True, timeout=MAVEN_S_MAX, check=False
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-3_000:]
