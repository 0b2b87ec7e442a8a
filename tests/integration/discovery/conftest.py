"""A discovery node in this process, between a fake cluster manager and fake shards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from discovery.bootstrap.node import DiscoveryNode
from discovery.config import DiscoveryConfig
from nextgen.client.client import Client
from nextgen.kernel.routing.names import parse_topic
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.runtime.settings import Address
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import cluster_service_pb2 as pb
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from tests.support.discovery.fake_cluster import FakeClusterServer, broker, full_update
from tests.support.discovery.fake_shard_server import TTL_MS, FakeShard, FakeShardServer

SHARDS = (1, 2, 3)
WAIT_S = 30
"""For what must happen. Only a failing test waits that long."""
TIMEOUT_MS = 20_000
"""For one request: none is given up because this machine stood still for a while."""


@dataclass
class Site:
    """Everything a test may touch."""

    node: DiscoveryNode
    manager: FakeClusterServer
    server: FakeShardServer
    client: Client

    async def connect(self, **more) -> PulsarClientConnection:
        """Return a Pulsar client's connection to the node."""
        return await PulsarClientConnection.open(
            "127.0.0.1", self.node.pulsar_port, timeout_ms=TIMEOUT_MS, **more
        )

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.node.grpc_port}"

    def shard_of(self, name: str) -> FakeShard:
        key = parse_topic(name).routing_key
        return self.server.shards[self.node.core.router.shard_of_key(key)]

    def assign(self, name: str, broker_id: str = "broker-1", session_id: str = "s-1") -> None:
        self.shard_of(name).assign(name, broker_id, session_id)

    async def until(self, condition, timeout_s: float = WAIT_S) -> None:
        async with timeout(timeout_s):
            while not condition():  # What is waited for has no event.
                await asyncio.sleep(0.01)

    async def until_watched(self) -> None:
        await self.until(
            lambda: (
                len(self.node.core.watches.by_shard) == len(SHARDS)
                and all(watch.is_current for watch in self.node.core.watches.by_shard.values())
            )
        )


async def started_node(
    manager: FakeClusterServer, node_id: str = "discovery-1", **more: Any
) -> DiscoveryNode:
    config = DiscoveryConfig(
        node_id=node_id,
        cluster_id="test",
        listen=Address("127.0.0.1", 0),
        advertise=Address("127.0.0.1", 1),
        http_listen=Address("127.0.0.1", 0),
        cluster_managers=(Address("127.0.0.1", manager.port),),
        pulsar_listen=Address("127.0.0.1", 0),
        pulsar_advertise=Address("127.0.0.1", 0),
        **more,
    )
    node = DiscoveryNode(config, CollectorRegistry())
    await node.start()
    return node


@pytest.fixture
def watch_ttl_ms() -> int:
    """How long answers may be used after what confirmed them."""
    return TTL_MS


@pytest.fixture
async def site(watch_ttl_ms: int) -> AsyncIterator[Site]:
    server = FakeShardServer(*SHARDS, ttl_ms=watch_ttl_ms)
    endpoint = await server.start()
    update = full_update(dict.fromkeys(SHARDS, endpoint))
    update.brokers.append(pulsar_broker("broker-1", "s-1"))
    manager = FakeClusterServer(update)
    await manager.start()
    node = await started_node(manager)
    client = Client([f"127.0.0.1:{node.grpc_port}"], timeout_ms=TIMEOUT_MS)
    site = Site(node, manager, server, client)
    await site.until_watched()
    yield site
    await client.close()
    await node.stop()
    await manager.stop()
    await server.stop()


def pulsar_broker(broker_id: str, session_id: str, **more) -> BrokerRecorded:
    """Return a broker that speaks Pulsar."""
    recorded = broker(broker_id, session_id, **more)
    recorded.endpoints.pulsar_url = f"pulsar://{broker_id}.example:6650"
    recorded.endpoints.http = f"{broker_id}.example:8080"
    return recorded


def directory(*brokers) -> pb.ClusterUpdate:
    return pb.ClusterUpdate(brokers=brokers)
