"""What stock brokers report: load, use, deletions; and where their Admin REST is."""

from __future__ import annotations

import json
import urllib.error
from typing import Any

import pulsar
import pytest

from tests.support.callers.stock_client import numbered, send_all
from tests.support.callers.stock_load import SEND_TIMEOUT_MS, SteadyProducer
from tests.support.stock.world import MEDDLED, PLAIN, STOCK, World, until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]


def path_of(topic: str) -> str:
    return topic.replace("://", "/")


def test_the_load_is_that_of_the_broker(
    world: World, client: pulsar.Client, handed_over: str
) -> None:
    topic = f"persistent://{handed_over}/loaded"
    world.system.create_topics([topic])
    world.move_to(topic, PLAIN)
    producer = client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
    consumer = client.subscribe(topic, "some")
    with SteadyProducer(producer, in_flight_max=100, pause_ms=1) as load:
        load.wait_acknowledged(100)

        def is_measured() -> bool:
            found = world.broker(PLAIN)["load"]
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
def test_a_topic_that_is_deleted_leaves_both(
    world: World, client: pulsar.Client, handed_over: str, by: str
) -> None:
    topic = f"persistent://{handed_over}/deleted-by-{by}"
    world.system.create_topics([topic])
    producer = client.create_producer(topic)
    send_all(producer, numbered(3))
    producer.close()

    if by == "pulsar":
        world.rest_of_pulsar("DELETE", path_of(topic))
    else:
        world.rest("DELETE", path_of(topic))

    until(lambda: not world.system.has_topic(topic), f"{topic} is still in the inventory")
    assert topic not in world.rest_of_pulsar("GET", f"persistent/{handed_over}")


@pytest.mark.parametrize("by", ["pulsar", "discovery"])
def test_a_partitioned_topic_is_operated_on_and_deleted_as_a_whole(
    world: World, client: pulsar.Client, handed_over: str, by: str
) -> None:
    """Partition 0 is at another broker than the one that is asked."""
    topic = f"persistent://{handed_over}/whole-{by}"
    path = path_of(topic)
    call = world.rest_of_pulsar if by == "pulsar" else world.rest
    world.stock.admin("PUT", f"{path}/partitions", 3)
    world.system.command("topics", "create", topic, "--partitions", "3")
    world.move_to(f"{topic}-partition-0", PLAIN)
    world.move_to(f"{topic}-partition-1", MEDDLED)
    producer = client.create_producer(topic)
    send_all(producer, numbered(6))
    client.subscribe(topic, "some").close()

    assert call("GET", f"{path}/subscriptions") == ["some"]
    stats = call("GET", f"{path}/partitioned-stats")
    assert stats["metadata"]["partitions"] == 3
    assert set(stats["subscriptions"]) == {"some"}
    call("PUT", f"{path}/unload")
    send_all(producer, numbered(3))
    producer.close()

    call("DELETE", f"{path}/partitions?force=true")

    until(lambda: not world.system.has_topic(topic), f"{topic} is still in the inventory")
    assert not world.rest_of_pulsar("GET", f"persistent/{handed_over}/partitioned")
    left = world.rest_of_pulsar("GET", f"persistent/{handed_over}")
    assert not [each for each in left if topic in each]


def test_the_name_of_a_topic_with_partitions_does_not_become_a_topic(
    world: World, handed_over: str
) -> None:
    """Of one that was created in Pulsar alone."""
    topic = f"persistent://{handed_over}/unknown"
    path = path_of(topic)
    world.stock.admin("PUT", f"{path}/partitions", 2)
    for number in STOCK:
        with pytest.raises(urllib.error.HTTPError):
            world.stock.lookup(number, path)
    assert not world.system.has_topic(topic)


def test_a_topic_that_is_deleted_while_it_is_open_nowhere_leaves_the_inventory(
    world: World, client: pulsar.Client, handed_over: str
) -> None:
    topic = f"persistent://{handed_over}/closed"
    world.system.create_topics([topic])
    client.create_producer(topic).close()
    world.system.command("topics", "unload", topic)
    world.rest_of_pulsar("DELETE", path_of(topic))

    until(lambda: not world.system.has_topic(topic), f"{topic} is still in the inventory")


def test_an_idle_topic_is_released_and_one_in_use_is_not(
    world: World, client: pulsar.Client, handed_over: str
) -> None:
    used, idle = topics = [f"persistent://{handed_over}/used", f"persistent://{handed_over}/idle"]
    world.system.create_topics(topics)
    for topic in topics:
        world.system.command("policies", "set", topic, "idle_time_ms=1000")
    kept, left = [client.create_producer(topic) for topic in topics]
    send_all(left, numbered(3))
    left.close()

    until(lambda: not why(world, idle)["broker_id"], f"{idle} is still assigned")
    assert why(world, used)["broker_id"]
    send_all(kept, numbered(3))
    again = client.create_producer(idle)
    send_all(again, numbered(3))


def why(world: World, topic: str) -> dict[str, Any]:
    """Return what is known of the topic's place, without looking it up: that would assign it."""
    (found,) = world.system.command("topics", "why", topic)
    return dict(found)


def test_operations_on_a_topic_are_its_brokers(
    world: World, client: pulsar.Client, handed_over: str
) -> None:
    topic = f"persistent://{handed_over}/operated"
    path = path_of(topic)
    world.system.create_topics([topic])
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "some")
    consumer.close()
    send_all(producer, numbered(5))

    assert world.rest("GET", f"{path}/stats")["subscriptions"]["some"]["msgBacklog"] == 5
    assert world.rest("GET", f"{path}/subscriptions") == ["some"]
    world.rest("POST", f"{path}/subscription/some/skip_all")
    assert world.rest("GET", f"{path}/stats")["subscriptions"]["some"]["msgBacklog"] == 0
