"""Stock Python clients meet the limits of policies and settings, at an embedded broker."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest

from tests.support.callers.stock_client import (
    PulsarSystem,
    numbered,
    received,
    running_system,
    send_all,
    texts,
)
from tests.support.processes.local_cluster import MINIMAL

pytestmark = pytest.mark.integration

NAMESPACE = "public/default"
PATIENCE_S = 3
"""How long a client repeats what is refused for a while."""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    with running_system(tmp_path_factory.mktemp("cluster"), MINIMAL) as system:
        yield system


def topic_of(name: str) -> str:
    return f"persistent://{NAMESPACE}/{name}"


def post(system: PulsarSystem, path: str, value: Any) -> tuple[int, str]:
    """Set a policy over REST; return status and answer."""
    request = urllib.request.Request(
        f"{system.http_url}/admin/v2/{path}",
        data=json.dumps(value).encode(),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def refused(system: PulsarSystem) -> float:
    return system.metric("broker-1", "nextgen_broker_clients_refused_total")


def throttled(system: PulsarSystem) -> float:
    return system.metric("broker-1", "nextgen_broker_publish_throttled_total")


def test_a_topics_rate_holds_its_producer_and_loses_nothing(system: PulsarSystem):
    topic = topic_of("rate")
    system.create_topic(topic)
    system.repeated_command(
        "policies", "set", topic, "limits.publishRate.publishThrottlingRateInMsg=100"
    )
    before = throttled(system)
    with system.client() as client:
        consumer = client.subscribe(topic, "sub", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(topic, batching_enabled=False)
        began = time.monotonic()
        for first in (0, 200, 400):
            for text in numbered(200, first=first):
                producer.send_async(text.encode(), None)
            producer.flush()
        # The last of them are not read before the others are paid for. No machine is too slow.
        assert time.monotonic() - began > 2.5
        assert texts(received(consumer, 600)) == numbered(600)
    assert throttled(system) > before


def test_a_subscription_is_sent_no_more_than_its_rate(system: PulsarSystem):
    topic = topic_of("dispatch")
    system.create_topic(topic)
    rate = {"dispatchThrottlingRateInMsg": 100, "ratePeriodInSecond": 1}
    assert post(system, f"persistent/{NAMESPACE}/dispatch/subscriptionDispatchRate", rate)[0] == 204
    with system.client() as client:
        client.subscribe(topic, "sub").close()
        send_all(client.create_producer(topic, batching_enabled=False), numbered(300))
        consumer = client.subscribe(topic, "sub")
        assert texts(received(consumer, 300)) == numbered(300)
    assert system.metric("broker-1", "nextgen_broker_dispatch_throttled_total") > 0


def test_numbers_of_a_namespace_are_kept_and_a_topics_win(system: PulsarSystem):
    system.create_topic(topic_of("numbers"))
    system.create_topic(topic_of("free"))
    path = f"namespaces/{NAMESPACE}/maxProducersPerTopic"
    assert post(system, path, 1)[0] == 204
    assert post(system, f"persistent/{NAMESPACE}/free/maxProducers", 0)[0] == 204
    before = refused(system)
    try:
        with system.client(operation_timeout_seconds=PATIENCE_S) as client:
            first = client.create_producer(topic_of("numbers"))
            with pytest.raises(pulsar.ProducerBusy):
                client.create_producer(topic_of("numbers"))
            client.create_producer(topic_of("free"))
            client.create_producer(topic_of("free"))
            first.close()
            client.create_producer(topic_of("numbers"))
    finally:
        system.repeated_command(
            "policies", "set", NAMESPACE, "--unset", "limits.maxProducersPerTopic"
        )
    assert refused(system) > before


def test_consumers_and_subscriptions_beyond_their_number_are_refused(system: PulsarSystem):
    topic = topic_of("consumers")
    system.create_topic(topic)
    assert post(system, f"persistent/{NAMESPACE}/consumers/maxConsumers", 2)[0] == 204
    assert post(system, f"persistent/{NAMESPACE}/consumers/maxSubscriptionsPerTopic", 2)[0] == 204
    with system.client(operation_timeout_seconds=PATIENCE_S) as client:
        shared = {"consumer_type": pulsar.ConsumerType.Shared}
        consumers = [client.subscribe(topic, "a", **shared), client.subscribe(topic, "b", **shared)]
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(topic, "a", **shared)
        consumers[0].close()
        with pytest.raises(pulsar.NotAllowedError):
            client.subscribe(topic, "c", **shared)
        client.subscribe(topic, "a", **shared)


def test_a_tenant_has_a_ceiling_over_its_topics(system: PulsarSystem):
    system.repeated_command("policies", "set", "public", "limits.tenantLimits.maxProducers=2")
    try:
        with system.client(operation_timeout_seconds=PATIENCE_S) as client:
            producers = [client.create_producer(topic_of(f"ceiling-{number}")) for number in "ab"]
            with pytest.raises(pulsar.ProducerBusy):
                client.create_producer(topic_of("ceiling-c"))
            producers[0].close()
            client.create_producer(topic_of("ceiling-c"))
    finally:
        system.repeated_command("policies", "set", "public", "--unset", "limits.tenantLimits")


def test_connections_of_an_address_are_bounded_by_a_setting(system: PulsarSystem):
    topic = topic_of("connections")
    with system.client() as client:
        producer = client.create_producer(topic)
        system.repeated_command("brokers", "settings", "set", "brokerMaxConnectionsPerIp=1")
        before = refused(system)
        try:
            with (
                system.client(operation_timeout_seconds=PATIENCE_S) as other,
                pytest.raises(pulsar.PulsarException),
            ):
                other.create_producer(topic)
            assert refused(system) > before
            producer.send(b"the first one goes on")
        finally:
            system.repeated_command("brokers", "settings", "unset", "brokerMaxConnectionsPerIp")
        with system.client() as other:
            other.create_producer(topic).send(b"there is room again")


@pytest.mark.parametrize(
    ("policy", "value", "message"),
    [
        ("publishRate", {"publishThrottlingRateInMsg": -7}, "publishThrottlingRateInMsg"),
        ("dispatchRate", {"ratePeriodInSecond": 0}, "ratePeriodInSecond"),
        ("dispatchRate", {"ratePeriodInSecond": 86_401}, "ratePeriodInSecond"),
        ("subscribeRate", {"ratePeriodInSecond": -1}, "ratePeriodInSecond"),
        ("maxProducersPerTopic", -1, "maxProducersPerTopic"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_name(
    system: PulsarSystem, policy: str, value: Any, message: str
):
    status, answer = post(system, f"namespaces/{NAMESPACE}/{policy}", value)

    assert status == 412
    assert message in answer
