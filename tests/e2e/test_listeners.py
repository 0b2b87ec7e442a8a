"""Stock clients that name a listener, at brokers whose other addresses lead nowhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from pulsar import InitialPosition

from nextgen.cli.local.plan import ClusterSize, NodePlan
from nextgen.client import BlockingClient
from tests.support.callers.stock_client import numbered, received, send_all, texts
from tests.support.processes.local_cluster import BlockingCluster, LocalCluster, blocking_cluster

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=2, shards=2)
NOWHERE = "127.0.0.1:9"
"""The port of the discard service, which no machine here serves."""

OPERATION_S = 30
REFUSED_S_MAX = 20

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


class ListeningCluster(LocalCluster):
    """Its brokers are reached by the listener ``outside`` only."""

    def command_of(self, node: NodePlan) -> list[str]:
        command = super().command_of(node)
        if node.kind == "broker":
            at = command.index("--pulsar-advertise")
            listeners = f"inside:pulsar://{NOWHERE},outside:pulsar://{node.pulsar}"
            command[at : at + 2] = ["--advertisedListeners", listeners]
        return command


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with blocking_cluster(directory, SIZE, kind=ListeningCluster) as started:
        yield started


@pytest.fixture
def connect(cluster: BlockingCluster, tmp_path: Path):
    opened: list[pulsar.Client] = []

    def connected(listener: str | None, operation_s: int = OPERATION_S):
        client = pulsar.Client(
            cluster.plan.service_url,
            listener_name=listener,
            operation_timeout_seconds=operation_s,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, str(tmp_path / "client.log")),
        )
        opened.append(client)
        return client

    yield connected
    for client in opened:
        client.close()


def test_a_client_that_names_a_listener_reaches_brokers_by_it(connect):
    topic = "persistent://public/default/named"
    client = connect("outside")

    consumer = client.subscribe(topic, "all", initial_position=InitialPosition.Earliest)
    send_all(client.create_producer(topic), numbered(10))

    assert texts(received(consumer, 10)) == numbered(10)


def test_a_client_that_names_none_gets_the_internal_listener(connect):
    client = connect(None, operation_s=3)

    with pytest.raises(pulsar.PulsarException):
        client.create_producer("persistent://public/default/internal")


def test_a_client_that_names_another_is_refused_before_its_timeout(connect):
    client = connect("moon")
    began = time.monotonic()

    with pytest.raises(pulsar.PulsarException):
        client.create_producer("persistent://public/default/moon")

    assert time.monotonic() - began < REFUSED_S_MAX


def test_a_client_stays_with_its_listener_when_its_topic_moves(cluster: BlockingCluster, connect):
    topic = "persistent://public/default/moving"
    client = connect("outside")
    consumer = client.subscribe(topic, "all", initial_position=InitialPosition.Earliest)
    producer = client.create_producer(topic)
    send_all(producer, numbered(5))

    with BlockingClient(list(cluster.plan.discovery_endpoints)) as admin:
        (before,) = admin.lookup([topic])
        (after,) = admin.move_topics({topic: ""})
    send_all(producer, numbered(5))

    assert after.broker_id not in ("", before.broker_id)
    assert texts(received(consumer, 10)) == numbered(5) * 2
