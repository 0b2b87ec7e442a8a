"""The stock Python client against discovery of a real cluster, as far as it needs no broker."""

import asyncio
import json
from collections.abc import Iterator
from urllib.request import urlopen

import pulsar
import pytest

from nextgen.client import BlockingClient
from nextgen.client.client import Client, NewTopic
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    ServerError,
)
from tests.support.processes.local_cluster import MINIMAL, BlockingCluster, blocking_cluster

pytestmark = pytest.mark.integration

TIMEOUT_S = 30
SEEN_S_MAX = 60
"""For what a client must come to see. Only a failing test waits that long."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[BlockingCluster]:
    """A cluster for all of these tests: each of them uses topics of its own."""
    with blocking_cluster(tmp_path_factory.mktemp("cluster"), MINIMAL) as cluster:
        endpoints = list(cluster.plan.discovery_endpoints)
        with BlockingClient(endpoints, timeout_ms=TIMEOUT_S * 1_000) as client:
            client.create_tenant("acme")
            for namespace in ("acme/orders", "acme/many", "acme/mortal"):
                client.create_namespace(namespace)
            client.create_namespace("acme/closed", {"allowAutoTopicCreation": "false"})
            client.create_namespace(
                "acme/wide", {"autoTopicCreationType": "partitioned", "defaultNumPartitions": "3"}
            )
            for topic in ("orders/five", "many/five", "mortal/five"):
                client.create_topics([NewTopic(f"persistent://acme/{topic}", 5)])
        yield cluster


def partitions_of(service_url: str, topics: list[str]) -> list[int | str]:
    """Return how many partitions the client sees, or what its exception is called."""
    client = pulsar.Client(
        service_url,
        operation_timeout_seconds=TIMEOUT_S,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    seen: list[int | str] = []
    try:
        for topic in topics:
            try:
                seen.append(len(client.get_topic_partitions(topic)))
            except pulsar.PulsarException as error:
                seen.append(type(error).__name__)
    finally:
        client.close()
    return seen


def urls(cluster: BlockingCluster) -> dict[str, str]:
    (discovery,) = cluster.plan.of_kind("discovery")
    return {"pulsar": f"pulsar://{discovery.pulsar}", "http": f"http://{discovery.http}"}


async def test_partitions_are_seen_over_both_protocols(cluster):
    topics = [
        "persistent://acme/orders/five",
        "persistent://acme/orders/five-partition-2",
        "persistent://acme/orders/made",
        "persistent://acme/wide/made",
        "plain",
    ]
    for scheme, url in urls(cluster).items():
        seen = await asyncio.to_thread(partitions_of, url, topics)

        # The client counts the topic itself as one.
        assert seen == [5, 1, 1, 3, 1], scheme


@pytest.mark.parametrize("topic", ["acme/closed/absent", "acme/unknown/absent"])
async def test_a_forbidden_creation_is_refused_at_once(cluster, topic):
    (seen,) = await asyncio.to_thread(
        partitions_of, urls(cluster)["pulsar"], [f"persistent://{topic}"]
    )

    assert seen == "TopicNotFound"


async def test_what_a_client_made_is_there_for_everybody(cluster):
    (discovery,) = cluster.plan.of_kind("discovery")
    await asyncio.to_thread(
        partitions_of, urls(cluster)["pulsar"], ["public-made", "persistent://acme/wide/w"]
    )

    async with Client([discovery.grpc]) as client:
        assert (await client.get_topic("public-made")).partitions == 0
        assert (await client.get_topic("acme/wide/w")).partitions == 3
        assert (await client.get_namespace("public/default")).properties == {}


async def test_a_deleted_topic_is_gone_for_clients_within_the_time_to_live(cluster):
    (discovery,) = cluster.plan.of_kind("discovery")
    topic = "persistent://acme/closed/brief"
    async with Client([discovery.grpc]) as client:
        await client.create_topics([NewTopic(topic, 4)])
        assert await asyncio.to_thread(partitions_of, urls(cluster)["pulsar"], [topic]) == [4]
        await client.delete_topic(topic)

    async with timeout(SEEN_S_MAX):
        while await asyncio.to_thread(partitions_of, urls(cluster)["pulsar"], [topic]) == [4]:
            await asyncio.sleep(0.1)  # There is nothing to wait on but the answer.


async def test_a_brokers_death_is_seen_and_its_topics_go_to_the_next(cluster):
    (discovery,) = cluster.plan.of_kind("discovery")
    (broker,) = cluster.plan.of_kind("broker")
    host, port = discovery.pulsar.split(":")
    topic = "persistent://acme/mortal/five-partition-0"
    async with await PulsarClientConnection.open(
        host, int(port), timeout_ms=TIMEOUT_S * 1_000
    ) as client:

        async def looked_up():
            asked = CommandLookupTopic(topic=topic)
            command = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=asked)
            return (await client.request(command, timeout_ms=20_000)).lookupTopicResponse

        async def is_served():
            """Wait for it: a shard leases a broker's capacity a little after it is ready."""
            async with timeout(SEEN_S_MAX):
                while (answer := await looked_up()).HasField("error"):
                    assert answer.error == ServerError.MetadataError
                    await asyncio.sleep(0.1)
            return answer.brokerServiceUrl

        assert await is_served() == f"pulsar://{broker.pulsar}"
        await asyncio.to_thread(cluster.kill, broker.node_id)
        async with timeout(SEEN_S_MAX):
            while not (answer := await looked_up()).HasField("error"):
                await asyncio.sleep(0.1)
        assert answer.error == ServerError.MetadataError

        await asyncio.to_thread(cluster.start_node, broker.node_id)
        assert await is_served() == f"pulsar://{broker.pulsar}"


async def test_a_namespaces_topics_are_the_same_over_both_protocols(cluster):
    (discovery,) = cluster.plan.of_kind("discovery")
    host, port = discovery.pulsar.split(":")
    asked = CommandGetTopicsOfNamespace(namespace="acme/many")
    async with await PulsarClientConnection.open(
        host, int(port), timeout_ms=TIMEOUT_S * 1_000
    ) as client:
        answer = await client.request(
            BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=asked),
            timeout_ms=TIMEOUT_S * 1_000,
        )
    address = f"http://{discovery.http}/admin/v2/namespaces/acme/many/topics"
    page = await asyncio.to_thread(lambda: urlopen(address, timeout=TIMEOUT_S).read())

    expected = [f"persistent://acme/many/five-partition-{number}" for number in range(5)]
    assert list(answer.getTopicsOfNamespaceResponse.topics) == expected
    assert json.loads(page) == expected
