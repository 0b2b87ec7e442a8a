"""Unmodified Apache Pulsar brokers serve topics that the cluster places one by one, beside embedded
brokers that serve others."""

from __future__ import annotations

import itertools
import json
import statistics
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pulsar
import pytest
from pulsar import InitialPosition, MessageId

from tests.support.callers.stock_client import (
    numbered,
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
from tests.support.stock.cluster import NODE
from tests.support.stock.recorded_clients import started_clients, wait_progress
from tests.support.stock.recorded_run import RecordedRun
from tests.support.stock.world import KEPT_FOR_EVER, STOCK, WITH_LISTENERS, World, until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

EMBEDDED = "acme/embedded"
MOVES = 10
MOVES_OF_EACH_CLIENT = 3
SESSION_OVER = "the session is over"
GAVE_UP = "some may be stored twice"
HAS_OPENED_ITS_OWN = "has opened a topic of its own"
READER_OF_POLICIES = "__system_reader"


@pytest.fixture
def topics(
    world: World, client: pulsar.Client, handed_over: str, request: pytest.FixtureRequest
) -> tuple[str, str]:
    """Two topics, of which Pulsar keeps all messages: a subscription has acknowledged none."""
    name = f"persistent://{handed_over}/{request.node.name}"
    pair = f"{name}-a", f"{name}-b"
    world.system.create_topics(pair)
    for topic in pair:
        client.subscribe(topic, "keeps", initial_position=InitialPosition.Earliest).close()
    return pair


def stored(client: pulsar.Client, topic: str) -> list[str]:
    return texts(read_all(client.create_reader(topic, MessageId.earliest)))


def answers(world: World, path: str, listener: str = "") -> list[dict[str, str]]:
    """Return what discovery and each stock broker answer to a lookup over HTTP."""
    query = f"?listenerName={listener}" if listener else ""
    url = f"{world.system.http_url}/lookup/v2/topic/{path}{query}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        discovered = json.load(answer)
    return [discovered, *(world.stock.lookup(asked, path, listener) for asked in STOCK)]


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


def test_a_topic_that_moves_stores_nothing_twice_without_pulsars_deduplication(
    world: World, client: pulsar.Client
) -> None:
    """Its ledger is closed when everything in it has its receipt, unless that takes a second."""
    namespace = "acme/without-deduplication"
    topic = f"persistent://{namespace}/topic"
    world.hand_over(namespace)
    world.stock.admin("POST", f"namespaces/{namespace}/deduplication", False)
    world.system.create_topics([topic])
    client.subscribe(topic, "keeps", initial_position=InitialPosition.Earliest).close()
    gave_up = -times_gave_up(world)
    with SteadyProducer(_producer(client, topic), in_flight_max=200) as load:
        load.wait_acknowledged(100)
        for _ in range(MOVES):
            world.move(topic)
            load.wait_acknowledged(100)

    contents = stored_numbers(client, topic)
    twice = [number for number, count in Counter(contents).items() if count > 1]
    gave_up += times_gave_up(world)
    print(f"{len(twice)} of {load.outcome.sent} are stored twice, {gave_up} moves gave up waiting")
    assert load.outcome.failed == {}
    assert sorted(set(load.outcome.acknowledged) - set(contents)) == [], "acknowledged and lost"
    assert twice == [] or gave_up


def test_brokers_own_lookups_agree_with_discovery(world: World, topics: tuple[str, str]) -> None:
    for topic in topics:
        path = topic.replace("://", "/")
        owner = world.number_of_owner(topic)
        for located in answers(world, path):
            assert located["brokerUrl"] == world.stock.url(owner), (topic, located)


def test_both_answer_with_the_addresses_of_the_listener_that_is_named(
    world: World, topics: tuple[str, str]
) -> None:
    """By TLS, too: of a broker that has listeners."""
    topic, _ = topics
    path = topic.replace("://", "/")
    world.move_to(topic, WITH_LISTENERS)
    outside = world.stock.outside_urls(WITH_LISTENERS)
    for located in answers(world, path, "outside"):
        assert (located["brokerUrl"], located["brokerUrlTls"]) == outside, located
    for located in (*answers(world, path), *answers(world, path, "internal")):
        assert located["brokerUrl"] == world.stock.url(WITH_LISTENERS), located


def test_clients_of_a_listener_follow_a_topic_to_a_broker_that_has_it(
    world: World, client: pulsar.Client, topics: tuple[str, str]
) -> None:
    """By a lookup: where a client is sent when the topic closes is for no listener."""
    topic, _ = topics
    world.move_to(topic, WITH_LISTENERS)
    with world.system.client(listener_name="outside") as outside:
        send_all(outside.create_producer(topic), numbered(5))
    producer = client.create_producer(topic)
    send_all(producer, numbered(5, first=5))
    world.move(topic)
    send_all(producer, numbered(5, first=10))
    world.move_to(topic, WITH_LISTENERS)
    send_all(producer, numbered(5, first=15))
    assert stored(client, topic) == numbered(20)


def test_other_namespaces_are_pulsars_as_before(world: World, client: pulsar.Client) -> None:
    """A namespace that is not handed over, at a broker and not through discovery."""
    topic = "persistent://acme/stays/by-bundle"
    world.stock.create_namespace("acme/stays")
    with world.system.client(world.stock.url(1)) as stock_client:
        producer = stock_client.create_producer(topic)
        send_all(producer, numbered(10))
        reader = stock_client.create_reader(topic, MessageId.earliest)
        assert texts(read_all(reader)) == numbered(10)
    assert not world.system.has_topic(topic)
    bundles = [world.stock.lookup(asked, topic.replace("://", "/")) for asked in STOCK]
    assert bundles[0] == bundles[1]


def test_unloading_a_bundle_of_a_namespace_that_is_handed_over_closes_nothing(
    world: World, client: pulsar.Client, handed_over: str, topics: tuple[str, str]
) -> None:
    topic, _ = topics
    stats = f"{topic.replace('://', '/')}/stats"
    client.create_producer(topic)
    before = json.loads(world.stock.admin("GET", stats))["publishers"]
    bounds = json.loads(world.stock.admin("GET", f"namespaces/{handed_over}"))["bundles"]

    for lower, upper in itertools.pairwise(bounds["boundaries"]):
        world.stock.admin("PUT", f"namespaces/{handed_over}/{lower}_{upper}/unload")

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
            first.wait_acknowledged(200)

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
        load.wait_acknowledged(400)
    world.start_sidecar(left)
    world.stock.wait_commanded(left)

    assert world.number_of_owner(topic) != left
    assert load.outcome.failed == {}
    assert_stored_once_in_order(stored_numbers(client, topic), load.outcome)
    print(f"longest gap: {load.outcome.gap_ms_max:.0f} ms")


def test_java_python_and_go_clients_are_judged_by_the_history_of_kills_and_moves(
    world: World, handed_over: str, tmp_path: Path
) -> None:
    """1. Every topic moves, from broker to broker. 2. A broker is killed and starts again, and
    meanwhile 3. another one is stopped until its topics are served elsewhere, and 4. a sidecar is
    killed. 5. Topics move to the broker that is back."""
    # The history checker needs every message, also those that consumers have acknowledged.
    world.stock.admin("POST", f"namespaces/{handed_over}/retention", KEPT_FOR_EVER)
    topics = [f"persistent://{handed_over}/judged-{each}" for each in ("java", "python", "go")]
    run = RecordedRun(world, tmp_path / "history", topics)
    with ExitStack() as ends:
        clients = started_clients(world.system.service_url, topics, run.directory, ends)
        wait_progress(clients, 100)
        for _ in range(MOVES_OF_EACH_CLIENT):
            for topic in topics:
                with run.fault("move", topic):
                    world.move(topic)
        wait_progress(clients, 100)

        killed, frozen, left = STOCK
        with run.fault("kill", NODE.format(killed)):
            first = world.first_at(killed, topics)
            world.stock.brokers[killed].kill()
            world.wait_other_owner(first, killed)
            world.start_broker(killed)
            wait_progress(clients, 100)
        with run.fault("pause", NODE.format(frozen)):
            first = world.first_at(frozen, topics)
            world.stock.freeze(frozen)
            world.wait_other_owner(first, frozen)
            world.stock.thaw(frozen)
            wait_progress(clients, 100)
            world.stock.wait_commanded(frozen)
        with run.fault("kill", f"sidecar of {NODE.format(left)}"):
            first = world.first_at(left, topics)
            world.stock.sidecars[left].kill()
            world.wait_other_owner(first, left)
            wait_progress(clients, 100)
            world.start_sidecar(left)
            world.stock.wait_commanded(left)
        world.stock.wait_commanded(killed)
        for topic in topics:
            with run.fault("move", topic):
                world.move_to(topic, killed)
        wait_progress(clients, 100)
        for each in clients:
            each.end()

    verdict = run.judged()
    print(f"{[each.acked for each in clients]} acknowledged, {verdict.counts()}")
    print("\n".join(each.message for each in verdict.findings))
    assert verdict.is_green
    assert verdict.acked >= 300 * len(clients)
    assert verdict.faults["move"] == (MOVES_OF_EACH_CLIENT + 1) * len(topics)


def test_a_broker_is_ready_for_topics_before_they_come(world: World, client: pulsar.Client) -> None:
    """Every broker has the policies of topics, also one that has none of these topics and one that
    has just started; that one has opened a topic of its own."""
    world.hand_over("acme/ahead")
    topic = "persistent://acme/ahead/one"
    world.system.create_topics([topic])
    send_all(client.create_producer(topic), numbered(1))

    def readers() -> set[str]:
        # The broker that is asked may not know yet where a broker's REST is that has just started.
        with suppress(AssertionError):
            stats = world.rest_of_pulsar("GET", "persistent/acme/ahead/__change_events/stats")
            return {name for name in stats["subscriptions"] if name.startswith(READER_OF_POLICIES)}
        return set()

    until(lambda: len(readers()) == len(STOCK), "some broker has not read the policies")
    before = readers()
    killed = next(each for each in STOCK[1:] if each != world.number_of_owner(topic))
    checked = world.stock.logged(killed, HAS_OPENED_ITS_OWN)
    world.stock.brokers[killed].kill()
    world.start_broker(killed)
    world.stock.wait_commanded(killed)

    assert world.stock.logged(killed, HAS_OPENED_ITS_OWN) == checked + 1
    until(
        lambda: len(readers()) == len(STOCK) and readers() != before,
        "the new broker has not read the policies",
    )


def test_embedded_and_stock_brokers_serve_their_own_namespaces(
    world: World, client: pulsar.Client, topics: tuple[str, str]
) -> None:
    """In one cluster, to one client: no topic ever comes to a broker of the other kind."""
    theirs, ours = topics[0], f"persistent://{EMBEDDED}/beside"
    world.system.create_namespace(EMBEDDED, {})
    world.system.create_topics([ours])
    with (
        SteadyProducer(_producer(client, theirs), in_flight_max=50, pause_ms=2) as at_stock,
        SteadyProducer(_producer(client, ours), in_flight_max=50, pause_ms=2) as at_embedded,
    ):
        for _ in range(3):
            before = world.system.owner(ours)
            world.system.move(ours)
            moved_to = world.move(theirs)
            assert world.system.owner(theirs) == moved_to
            assert world.system.owner(ours) != before
            for each in (at_stock, at_embedded):
                each.wait_acknowledged(50)
        for topic, target, kind in ((ours, moved_to, "stock"), (theirs, before, "embedded")):
            why = world.system.refused_command("topics", "move", topic, "--to", target)
            assert f"broker {target} is {kind}, the topic is served by" in why
            assert world.system.owner(topic) != target
        kinds = {world.system.owner(ours), world.system.owner(theirs)}
        assert {each.partition("-")[0] for each in kinds} == {"broker", "stock"}

    for topic, load in ((theirs, at_stock), (ours, at_embedded)):
        assert load.outcome.failed == {}
        assert_stored_once_in_order(stored_numbers(client, topic), load.outcome)


def test_a_namespace_that_the_cluster_has_for_embedded_brokers_is_not_served_by_stock_ones(
    world: World,
) -> None:
    """Handed over in Pulsar alone: its topics would begin anew elsewhere."""
    world.stock.hand_over("acme/half")
    world.system.create_namespace("acme/half", {})

    with pytest.raises(urllib.error.HTTPError) as refused:
        world.stock.lookup(1, "persistent/acme/half/topic")

    why = refused.value.read().decode()
    print(why)
    assert "served by embedded broker" in why


def times_gave_up(world: World) -> int:
    """Return how often stock brokers closed a topic without waiting any longer for its receipts."""
    return sum(world.stock.logged(number, GAVE_UP) for number in STOCK)


def _producer(client: pulsar.Client, topic: str) -> pulsar.Producer:
    return client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
