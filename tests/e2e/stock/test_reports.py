"""What stock brokers report: load, use, deletions; and where their Admin REST is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest

from tests.support.callers.stock_client import numbered, send_all
from tests.support.callers.stock_load import SEND_TIMEOUT_MS, SteadyProducer
from tests.support.stock.pair import NAMESPACE, PLAIN, Pair, running_pair, until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

BASE = f"persistent://{NAMESPACE}"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running_pair(tmp_path_factory.mktemp("pair")) as pair:
        yield pair


@pytest.fixture
def client(pair: Pair) -> Iterator[pulsar.Client]:
    with pair.system.client() as opened:
        yield opened


def path_of(topic: str) -> str:
    return topic.replace("://", "/")


def test_the_load_is_that_of_the_broker(pair: Pair, client: pulsar.Client) -> None:
    topic = f"{BASE}/loaded"
    pair.system.create_topics([topic])
    pair.place(topic, PLAIN)
    producer = client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
    consumer = client.subscribe(topic, "some")
    with SteadyProducer(producer, in_flight_max=100, pause_ms=1) as load:
        load.wait_acknowledged(100)

        def is_measured() -> bool:
            found = pair.broker(PLAIN)["load"]
            print(json.dumps(found))
            return (
                found is not None
                and found["connections"] > 0
                and found["producers"] > 0
                and found["consumers"] > 0
                and found["cpu_fraction"] > 0
                and found["cores"] > 0
                and 0 < found["memory_bytes"] <= found["memory_limit_bytes"]
                and found["messages_in_per_second"] > 1
                and found["bytes_in_per_second"] > 1
                and topic in [each["name"] for each in found["busiest"]]
            )

        until(is_measured)
    consumer.close()


@pytest.mark.parametrize("by", ["pulsar", "discovery"])
def test_a_topic_that_is_deleted_leaves_both(pair: Pair, client: pulsar.Client, by: str) -> None:
    topic = f"{BASE}/deleted-by-{by}"
    pair.system.create_topics([topic])
    producer = client.create_producer(topic)
    send_all(producer, numbered(3))
    producer.close()

    if by == "pulsar":
        pair.rest_of_pulsar("DELETE", path_of(topic))
    else:
        pair.rest("DELETE", path_of(topic))

    until(lambda: not pair.system.has_topic(topic), f"{topic} is still in the inventory")
    assert topic not in pair.rest_of_pulsar("GET", path_of(BASE))


def test_a_topic_that_is_deleted_while_it_is_open_nowhere_leaves_the_inventory(
    pair: Pair, client: pulsar.Client
) -> None:
    topic = f"{BASE}/closed"
    pair.system.create_topics([topic])
    client.create_producer(topic).close()
    pair.system.command("topics", "unload", topic)
    pair.rest_of_pulsar("DELETE", path_of(topic))

    until(lambda: not pair.system.has_topic(topic), f"{topic} is still in the inventory")


def test_an_idle_topic_is_released_and_one_in_use_is_not(pair: Pair, client: pulsar.Client) -> None:
    used, idle = topics = [f"{BASE}/used", f"{BASE}/idle"]
    pair.system.create_topics(topics)
    for topic in topics:
        pair.system.command("policies", "set", topic, "idle_time_ms=1000")
    kept, left = [client.create_producer(topic) for topic in topics]
    send_all(left, numbered(3))
    left.close()

    until(lambda: not why(pair, idle)["broker_id"], f"{idle} is still assigned")
    assert why(pair, used)["broker_id"]
    send_all(kept, numbered(3))
    again = client.create_producer(idle)
    send_all(again, numbered(3))


def why(pair: Pair, topic: str) -> dict[str, Any]:
    """Return what is known of the topic's place, without looking it up: that would assign it."""
    (found,) = pair.system.command("topics", "why", topic)
    return dict(found)


def test_operations_on_a_topic_are_its_brokers(pair: Pair, client: pulsar.Client) -> None:
    topic = f"{BASE}/operated"
    path = path_of(topic)
    pair.system.create_topics([topic])
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "some")
    consumer.close()
    send_all(producer, numbered(5))

    assert pair.rest("GET", f"{path}/stats")["subscriptions"]["some"]["msgBacklog"] == 5
    assert pair.rest("GET", f"{path}/subscriptions") == ["some"]
    pair.rest("POST", f"{path}/subscription/some/skip_all")
    assert pair.rest("GET", f"{path}/stats")["subscriptions"]["some"]["msgBacklog"] == 0
