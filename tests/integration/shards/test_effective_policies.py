"""After an effective write every broker that has the object says what was written: never less."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from nextgen.client import Client
from nextgen.client.brokers.metadata import broker_metadata
from nextgen.client.model import ObjectPolicies, Written
from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.policies import policies_from_proto
from nextgen.kernel.errors import Refused
from nextgen.kernel.governance.policies import Policies
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC, Kind
from protos.nextgen.v1.shard_service_pb2 import ObjectName
from tests.support.callers.cluster_questions import NAMESPACE, prepare_namespace, wait_brokers_used
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

pytestmark = pytest.mark.integration

SIZE = ClusterSize(1, 3, 2, 2, shards=2)
TOPICS = [f"persistent://{NAMESPACE}/t-{number}" for number in range(8)]
CHANGES = 200
RACERS = 100
TIMEOUT_MS = 30_000


class Brokers:
    """The brokers of a cluster, asked one by one what they hold."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.channels: dict[str, grpc.aio.Channel] = {
            node.node_id: open_channel(node.grpc) for node in cluster.plan.of_kind("broker")
        }

    async def ttl_of(self, broker_id: str, kind: Kind, name: str) -> int | None:
        """Return what a broker says of a message's time to live."""
        held = await broker_metadata(self.channels[broker_id], [ObjectName(kind=kind, name=name)])
        item = held.items[0]
        value = item.WhichOneof("value")
        assert value is not None, f"{broker_id} does not have {name}"
        return policies_from_proto(getattr(item, value).policies).message_ttl_ms

    async def close(self) -> None:
        for channel in self.channels.values():
            await close_channel(channel)


@asynccontextmanager
async def cluster_with_topics(
    directory: Path,
) -> AsyncIterator[tuple[LocalCluster, Client, Brokers, dict[str, str]]]:
    """Run a cluster whose brokers have all the topics; the last value says who has which."""
    async with running_cluster(directory, SIZE) as cluster:
        endpoints = [node.grpc for node in cluster.plan.of_kind("discovery")]
        async with Client(endpoints, timeout_ms=TIMEOUT_MS, effective=True) as client:
            await prepare_namespace(client)
            await wait_brokers_used(cluster, client)
            await client.create_topics(TOPICS)
            places = {place.topic: place.broker_id for place in await client.lookup(TOPICS)}
            brokers = Brokers(cluster)
            try:
                yield cluster, client, brokers, places
            finally:
                await brokers.close()


@pytest.mark.slow
async def test_no_broker_is_behind_an_effective_write(tmp_path: Path) -> None:
    """Also not behind the first one at a leader that does not know who subscribed before it."""
    async with cluster_with_topics(tmp_path) as (cluster, client, brokers, places):
        assert len(set(places.values())) == 2, "each broker has some"
        holders = {name: [broker_id] for name, broker_id in places.items()}
        holders |= {"acme": list(brokers.channels), NAMESPACE: list(brokers.channels)}

        async def check(kind: Kind, name: str, ttl_ms: int) -> Written:
            written = await client.set_policies(name, Policies(message_ttl_ms=ttl_ms))
            said = [await brokers.ttl_of(each, kind, name) for each in holders[name]]
            assert said == [ttl_ms] * len(said)
            return written

        for number in range(1, CHANGES + 1):
            topic = TOPICS[number % len(TOPICS)]
            kind, name = ((KIND_TENANT, "acme"), (KIND_NAMESPACE, NAMESPACE), (KIND_TOPIC, topic))[
                number % 3
            ]
            written = await check(kind, name, number)

        written = await check(KIND_NAMESPACE, NAMESPACE, CHANGES + 1)
        leader = next(
            shard.leader_node
            for shard in (await client.cluster()).shards
            if shard.shard_id == written.shard_id
        )
        await cluster.kill(leader)
        for number in range(CHANGES + 2, CHANGES + 7):
            await check(KIND_NAMESPACE, NAMESPACE, number)

        await _race(client)


async def _race(client: Client) -> None:
    """Of those who expect the same version exactly one wins, and what he said is what counts."""
    version = (await client.get_policies(NAMESPACE)).version

    async def run(racer: int) -> str:
        try:
            said = Policies(message_ttl_ms=racer)
            await client.set_policies(NAMESPACE, said, expected_version=version)
        except Refused as refused:
            return refused.code
        return ""

    codes = await asyncio.gather(*(run(racer) for racer in range(RACERS)))

    assert sorted(codes) == ["", *["VERSION_MISMATCH"] * (RACERS - 1)]
    assert await client.get_policies(NAMESPACE) == ObjectPolicies(
        Policies(message_ttl_ms=codes.index("")), version + 1
    )
