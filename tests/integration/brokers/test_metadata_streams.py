"""Changes of metadata reach the brokers that have the object, in a real cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from nextgen.client import Client
from nextgen.client.brokers.metadata import broker_metadata
from nextgen.client.transport.channel import with_proofs
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC, Item
from protos.nextgen.v1.shard_service_pb2 import GetNodeStatusRequest, ObjectName
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub
from tests.support.callers.cluster_questions import (
    NAMESPACE,
    busiest_shard_leader,
    client_of,
    prepare_namespace,
    wait_brokers_used,
    wait_settled,
)
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

SIZE = ClusterSize(1, 3, 1, 2, shards=2)
TOPICS = [f"persistent://{NAMESPACE}/t-{number}" for number in range(8)]


def version_of(item: Item) -> int:
    """Return the version of a tenant, namespace or topic, 0 of an absent one."""
    kind = item.WhichOneof("value")
    return 0 if kind is None else int(getattr(item, kind).version)


NAMES = [
    ObjectName(kind=KIND_TENANT, name="acme"),
    ObjectName(kind=KIND_NAMESPACE, name=NAMESPACE),
    *(ObjectName(kind=KIND_TOPIC, name=topic) for topic in TOPICS),
]
WAIT_S = 60
CALL_MS_MAX = 30_000
"""For one call: an election, and a process that stalls meanwhile."""

LOOK_S = 0.05


class _Brokers:
    """The brokers of a cluster, and what each of them is to hold."""

    def __init__(self, channels: dict[str, grpc.aio.Channel]) -> None:
        self._channels = channels
        self.topics: dict[str, list[str]] = {}
        """By broker: a broker that stands still for seconds loses what it has to others."""

    async def locate(self, client: Client) -> None:
        """Learn which broker has which topic; a topic that is idle is given to one."""
        places = await client.lookup(TOPICS)
        assert all(place.is_found for place in places), places
        self.topics = {}
        for place in places:
            self.topics.setdefault(place.broker_id, []).append(place.topic)

    async def held(self, broker_id: str) -> dict[str, Item]:
        held = await broker_metadata(self._channels[broker_id], NAMES)
        assert held.broker_id == broker_id
        return {item.name: item for item in held.items}

    async def wait(self, broker_id: str, is_so: Callable[[dict[str, Item]], bool]) -> None:
        """Return when a broker holds what is wanted."""
        async with timeout(WAIT_S):
            while not is_so(await self.held(broker_id)):
                await asyncio.sleep(LOOK_S)

    async def wait_current(self, client: Client) -> None:
        """Return when every broker holds what it has in the version of the inventory."""
        tenant, namespace = await client.get_tenant("acme"), await client.get_namespace(NAMESPACE)
        assert tenant is not None
        assert namespace is not None
        versions = {"acme": tenant.version, NAMESPACE: namespace.version}
        for topic in TOPICS:
            found = await client.get_topic(topic)
            assert found is not None
            versions[topic] = found.version
        async with timeout(WAIT_S):
            while not await self._are_current(client, versions):
                await asyncio.sleep(LOOK_S)

    async def _are_current(self, client: Client, versions: Mapping[str, int]) -> bool:
        await self.locate(client)
        for broker_id, topics in self.topics.items():
            held = await self.held(broker_id)
            names = ("acme", NAMESPACE, *topics)
            if any(version_of(held[name]) != versions[name] for name in names):
                return False
        return True


@asynccontextmanager
async def cluster_with_topics(
    directory: Path,
) -> AsyncIterator[tuple[LocalCluster, Client, _Brokers]]:
    """Run a cluster whose brokers have all the topics, some each."""
    async with (
        running_cluster(directory, SIZE) as cluster,
        client_of(cluster, timeout_ms=CALL_MS_MAX) as client,
    ):
        await wait_settled(client)
        await prepare_namespace(client)
        await wait_brokers_used(cluster, client)
        await client.create_topics(TOPICS)
        nodes = cluster.plan.of_kind("broker")
        brokers = _Brokers({node.node_id: patient_channel(node.grpc) for node in nodes})
        try:
            await brokers.locate(client)
            yield cluster, client, brokers
        finally:
            for channel in brokers._channels.values():
                await channel.close()


def patient_channel(endpoint: str) -> grpc.aio.Channel:
    """Return a channel that does not give up a process that stands still, as ours do."""
    return with_proofs(grpc.aio.insecure_channel(endpoint))


async def test_changed_properties_reach_the_brokers_that_have_the_object_and_no_other(
    tmp_path: Path,
) -> None:
    async with cluster_with_topics(tmp_path) as (cluster, client, brokers):
        assert len(brokers.topics) == 2, "each broker has some"
        # Watches begin with a snapshot, a moment behind the assignment. What a broker has from one
        # that began behind a first change, it is told by the same watch from then on.
        await client.set_tenant_properties("acme", {"size": "l"})
        await client.set_namespace_properties(NAMESPACE, {"retention": "1m"})
        for topic in TOPICS:
            await client.set_topic_properties(topic, {"ttl": "4"})
        await brokers.wait_current(client)
        told_before = await _deliveries(cluster)

        await client.set_tenant_properties("acme", {"size": "xl"})
        await client.set_namespace_properties(NAMESPACE, {"retention": "1h"})
        for topic in TOPICS:
            await client.set_topic_properties(topic, {"ttl": "5"})
            await client.set_topic_properties(topic, {"ttl": "6"})
        await brokers.wait_current(client)

        for broker_id, topics in brokers.topics.items():
            held = await brokers.held(broker_id)
            assert dict(held["acme"].tenant.properties) == {"size": "xl"}
            assert dict(held[NAMESPACE].namespace.properties) == {"retention": "1h"}
            for topic in TOPICS:
                version, properties = version_of(held[topic]), dict(held[topic].topic.properties)
                assert (version, properties) == ((4, {"ttl": "6"}) if topic in topics else (0, {}))
        # It is 2 + 2 + 2 * len(TOPICS). A new leader, if there was one meanwhile, may tell of a
        # change once more, and a watch that began anew tells what holds, not each change. If every
        # change were told to every broker, there would be twice as many of topics.
        told = await _deliveries(cluster) - told_before
        assert 0 < told < 2 + 2 + 2 * 2 * len(TOPICS)


async def _deliveries(cluster: LocalCluster) -> int:
    """Return how many changes all shard nodes have sent to brokers."""
    told = 0
    for node in cluster.plan.of_kind("shard-node"):
        async with patient_channel(node.grpc) as channel:
            status = await ShardServiceStub(channel).GetNodeStatus(GetNodeStatusRequest())
        told += status.counters["metadata_deliveries"]
    return told


async def test_a_deleted_topic_is_forgotten_and_one_of_its_name_is_another(tmp_path: Path) -> None:
    async with cluster_with_topics(tmp_path) as (_, client, brokers):
        topic = TOPICS[0]
        owner = next(each for each, topics in brokers.topics.items() if topic in topics)
        before = (await brokers.held(owner))[topic].topic.topic_id
        await client.delete_topic(topic)

        await brokers.wait(owner, lambda held: not version_of(held[topic]))

        await client.create_topics([topic])
        await brokers.locate(client)
        await client.set_topic_properties(topic, {"ttl": "7"})
        await brokers.wait_current(client)
        owner = next(each for each, topics in brokers.topics.items() if topic in topics)
        assert (await brokers.held(owner))[topic].topic.topic_id != before


@pytest.mark.slow
async def test_what_changes_while_leaders_are_killed_reaches_the_brokers(tmp_path: Path) -> None:
    async with cluster_with_topics(tmp_path) as (cluster, client, brokers):
        for number in range(2):
            victim = await busiest_shard_leader(client)
            killing = asyncio.create_task(cluster.kill(victim))
            await client.set_namespace_properties(NAMESPACE, {"round": str(number)})
            for topic in TOPICS:
                await client.set_topic_properties(topic, {"round": str(number)})
            await killing

            await brokers.wait_current(client)

            await cluster.start_node(victim)
            await cluster.wait_ready((victim,))
        for broker_id, topics in brokers.topics.items():
            held = await brokers.held(broker_id)
            assert [dict(held[topic].topic.properties) for topic in topics] == [
                {"round": "1"} for _ in topics
            ]
