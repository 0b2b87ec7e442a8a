"""The stock Python client as a consumer by pattern, which asks for the topics again and again."""

from __future__ import annotations

import re

import pulsar
import pytest
from pulsar import InitialPosition

from tests.support.callers.stock_client import PulsarSystem, received, send_all, texts

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

NAMESPACE = "e2e/listed"
"""No client creates topics there: one that was deleted stays away."""

DISCOVERY_PERIOD_S = 1


@pytest.fixture
def _asks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client takes a period and ignores it (apache/pulsar-client-python issue 171): 60 s."""
    made = pulsar._pulsar.ConsumerConfiguration

    def configuration() -> pulsar._pulsar.ConsumerConfiguration:
        built = made()
        built.pattern_auto_discovery_period(DISCOVERY_PERIOD_S)
        return built

    monkeypatch.setattr(pulsar._pulsar, "ConsumerConfiguration", configuration)


@pytest.mark.usefixtures("_asks_often")
def test_topics_of_several_shards_come_and_go(system: PulsarSystem, client: pulsar.Client) -> None:
    system.start_dead()
    system.create_namespace(NAMESPACE, {"allowAutoTopicCreation": "false"})
    topics = [f"persistent://{NAMESPACE}/python-{number}" for number in range(6)]

    def arrives(topics: list[str], content: str) -> bool:
        for topic in topics:
            producer = client.create_producer(topic)
            send_all(producer, [f"{content} {topic}"])
            producer.close()
        expected = sorted(f"{content} {topic}" for topic in topics)
        return sorted(texts(received(consumer, len(topics)))) == expected

    for topic in topics[:3]:
        system.create_topic(topic)
    consumer = client.subscribe(
        re.compile(f"persistent://{NAMESPACE}/python-.*"),
        "all",
        initial_position=InitialPosition.Earliest,
    )

    for topic in topics[3:]:
        system.create_topic(topic)
    assert arrives(topics, "later")

    gone = topics[-1]
    system.repeated_command("topics", "delete", gone, "--force")
    assert arrives(topics[:-1], "deleted")
    assert gone not in system.topics_of(NAMESPACE)

    system.create_topic(gone)
    assert arrives(topics, "again")
