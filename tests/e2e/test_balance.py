"""Brokers even out by themselves under the load of stock clients, and nothing is lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pulsar
import pytest
from pulsar import InitialPosition

from tests.support.callers.stock_client import ClusterSize, PulsarSystem, running_system
from tests.support.callers.stock_load import SEND_TIMEOUT_MS

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=3, shards=2)
TOPICS = [f"persistent://balance/load/t-{number:02}" for number in range(40)]
EVEN = 1.15
WAIT_S = 400
"""Only a failing test waits that long. A broker whose load is steady reports it once a minute, and
a plan waits for the reports behind the moves of the one before."""

WINDOW_S = 5.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_000)]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    with running_system(tmp_path_factory.mktemp("cluster"), SIZE) as running:
        yield running


class SkewedLoad:
    """Sends numbers to all topics from a thread, the more the lower a topic's number is."""

    def __init__(self, producers: Sequence[pulsar.Producer]) -> None:
        self._producers = producers
        self.acknowledged: list[list[int]] = [[] for _ in producers]
        self.failures: list[str] = []
        self._sent = [0] * len(producers)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="skewed-load")

    def __enter__(self) -> SkewedLoad:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopping.set()
        self._thread.join()
        for producer in self._producers:
            producer.flush()

    def _run(self) -> None:
        turn = 0
        while not self._stopping.is_set():
            turn += 1
            for at, producer in enumerate(self._producers):
                if turn % (1 + at // 4) == 0:
                    self._send(at, producer)
            time.sleep(0.04)

    def _send(self, at: int, producer: pulsar.Producer) -> None:
        number = self._sent[at]
        self._sent[at] += 1

        def done(result: pulsar.Result, _message_id: object) -> None:
            if result == pulsar.Result.Ok:
                self.acknowledged[at].append(number)
            else:
                self.failures.append(f"{number} of {at}: {result}")

        producer.send_async(b"%06d" % number + b"x" * 5_000, done)


def traffic(system: PulsarSystem, brokers: Sequence[str]) -> dict[str, float]:
    """Return the bytes that each broker takes within a window."""
    name = "nextgen_broker_bytes_in_total"
    before = {broker: system.metric(broker, name) for broker in brokers}
    time.sleep(WINDOW_S)
    return {broker: system.metric(broker, name) - before[broker] for broker in brokers}


def wait_even(system: PulsarSystem, brokers: Sequence[str]) -> dict[str, float]:
    deadline = time.monotonic() + WAIT_S
    while True:
        found = traffic(system, brokers)
        if max(found.values()) * len(found) <= EVEN * sum(found.values()):
            return found
        assert time.monotonic() < deadline, f"never even: {found}"


def test_brokers_even_out_and_a_new_one_is_filled_while_stock_clients_lose_nothing(
    system: PulsarSystem,
) -> None:
    """All load is at one of three brokers at first; then a fourth one joins."""
    system.command(
        *("brokers", "settings", "set", "loadBalancerSheddingIntervalMinutes=0.1"),
        "loadBalancerSheddingGracePeriodMinutes=0.5",
    )
    system.create_namespace("balance/load", {})
    system.create_topics(TOPICS)
    for topic in TOPICS:
        if system.owner(topic) != "broker-1":
            system.repeated_command("move", topic, "--to", "broker-1")
    assert set(system.owners(TOPICS)) == {"broker-1"}

    with system.client() as client:
        producers = [
            client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS) for topic in TOPICS
        ]
        with SkewedLoad(producers) as load:
            wait_even(system, ["broker-1", "broker-2", "broker-3"])
            joined = system.add_broker()
            wait_even(system, ["broker-1", "broker-2", "broker-3", joined])

    assert load.failures == []
    assert Counter(system.owners(TOPICS))[joined] > 0
    with system.client() as client:
        for topic, numbers in zip(TOPICS, load.acknowledged, strict=True):
            assert stored(client, topic, max(numbers)) >= set(numbers)
    assert system.metric("shard-node-1", "nextgen_shard_evacuated_units_total") > 0
    (why,) = system.command("topics", "why", moved_topic(system))
    assert "asked for by balance" in str(why)


def stored(client: pulsar.Client, topic: str, last: int) -> set[int]:
    """Return the numbers that a new subscription finds, up to one."""
    consumer = client.subscribe(topic, "check", initial_position=InitialPosition.Earliest)
    found: set[int] = set()
    while last not in found:
        found.add(int(consumer.receive(timeout_millis=30_000).data()[:6]))
    consumer.close()
    return found


def moved_topic(system: PulsarSystem) -> str:
    return next(
        topic
        for topic, owner in zip(TOPICS, system.owners(TOPICS), strict=True)
        if owner != "broker-1"
    )
