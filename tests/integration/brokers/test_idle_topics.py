"""Topics without clients leave their brokers: the stock Python client and embedded brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pulsar
import pytest

from tests.support.callers.stock_client import (
    SMALL,
    PulsarSystem,
    numbered,
    received,
    running_system,
    send_all,
    texts,
)

pytestmark = pytest.mark.integration

NAMESPACE = "public/idle"
TOPIC = f"persistent://{NAMESPACE}/orders"
EARLIEST = pulsar.InitialPosition.Earliest
COMES_ABOUT_S = 60
PAUSE_S = 1
"""Between two looks, each of which is a command: it takes a tenth of a second of processor time,
and a topic takes seconds to leave."""
NOT_YET_S = 5
"""Longer than units with an idle time of a second need to leave."""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    with running_system(tmp_path_factory.mktemp("cluster"), SMALL) as system:
        system.create_namespace(NAMESPACE, {})
        yield system


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + COMES_ABOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(PAUSE_S)


def why(system: PulsarSystem, topic: str) -> dict[str, Any]:
    """Return what is known of the topic's place, without looking it up: that would assign it."""
    (found,) = system.command("topics", "why", topic)
    return dict(found)


def set_policies(system: PulsarSystem, name: str, *fields: str) -> None:
    system.command("policies", "set", name, *fields)


def test_an_idle_topic_leaves_and_comes_back_with_its_backlog_and_subscription(
    system: PulsarSystem,
):
    """The policy is set while its clients are connected."""
    topic = f"{TOPIC}-backlog"
    with system.client() as client:
        producer = client.create_producer(topic, batching_enabled=False)
        send_all(producer, numbered(10))
        consumer = client.subscribe(topic, "sub", initial_position=EARLIEST)
        messages = received(consumer, 4)
        for message in messages:
            consumer.acknowledge(message)
        set_policies(system, NAMESPACE, "idle_time_ms=1000", "retention.time_ms=0")
        time.sleep(NOT_YET_S)
        before = why(system, topic)
        assert before["broker_id"], "it has clients"

    until(lambda: not why(system, topic)["broker_id"])

    left = why(system, topic)
    assert left["why_none"] == "no client used it"
    with system.client() as client:
        consumer = client.subscribe(topic, "sub", initial_position=EARLIEST)
        assert texts(received(consumer, 6)) == numbered(6, first=4)
    assert why(system, topic)["epoch"] > before["epoch"]


def test_a_topic_whose_messages_are_still_kept_for_a_time_stays_until_they_are_dropped(
    system: PulsarSystem,
):
    topic = f"{TOPIC}-retained"
    system.create_topic(topic)
    set_policies(system, topic, "idle_time_ms=1000", "retention.time_ms=3600000")
    with system.client() as client:
        producer = client.create_producer(topic, batching_enabled=False)
        send_all(producer, numbered(3))
    time.sleep(NOT_YET_S)
    assert why(system, topic)["broker_id"], "who would drop its messages in an hour?"

    set_policies(system, topic, "idle_time_ms=1000", "retention.time_ms=0")

    until(lambda: not why(system, topic)["broker_id"])


def test_segments_and_their_scalable_topic_and_topics_that_keep_nothing_leave_as_others_do(
    system: PulsarSystem,
):
    volatile = f"non-persistent://{NAMESPACE}/volatile"
    set_policies(system, NAMESPACE, "idle_time_ms=1000", "retention.time_ms=0")
    scalable = f"topic://{NAMESPACE}/scalable"
    system.create_scalable(scalable, 2)
    segments = system.segments_of(scalable)
    owners = {segment: system.owner(segment) for segment in segments}
    assert all(owners.values())
    with system.client() as client:
        producer = client.create_producer(volatile)
        producer.send(b"gone")

    until(lambda: not any(why(system, name)["broker_id"] for name in (*segments, volatile)))

    assert system.segments_of(scalable) == segments, "its layout is not concerned"
    system.split_first(scalable)
    assert len(system.segments_of(scalable)) == 3
    with system.client() as client:
        producer = client.create_producer(volatile)
        producer.send(b"again")


def test_a_shadow_that_nobody_reads_leaves_and_then_its_source(system: PulsarSystem):
    source = f"{TOPIC}-source"
    shadow = f"{source}-shadow"
    set_policies(system, NAMESPACE, "idle_time_ms=1000", "retention.time_ms=0")
    system.create_topic(source)
    system.create_shadow(shadow, source)
    with system.client() as client:
        producer = client.create_producer(source, batching_enabled=False)
        consumer = client.subscribe(shadow, "sub", initial_position=EARLIEST)
        send_all(producer, numbered(3))
        messages = received(consumer, 3)
        assert texts(messages) == numbered(3)
        consumer.acknowledge_cumulative(messages[-1])
        producer.close()
        time.sleep(NOT_YET_S)
        assert why(system, source)["broker_id"], "it feeds the shadow"

    until(lambda: not any(why(system, name)["broker_id"] for name in (shadow, source)))

    with system.client() as client:
        producer = client.create_producer(source, batching_enabled=False)
        consumer = client.subscribe(shadow, "sub", initial_position=EARLIEST)
        send_all(producer, numbered(2, first=3))
        assert texts(received(consumer, 2)) == numbered(2, first=3)
