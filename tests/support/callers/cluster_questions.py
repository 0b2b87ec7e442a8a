"""Common requests to a running cluster: a client, a namespace, the present leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio

from nextgen.cli.local.cluster import LocalCluster
from nextgen.client import Client
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1.cluster_service_pb2_grpc import ClusterServiceStub
from tests.support.callers.member_channel import member_channel

NAMESPACE = "acme/orders"
LEADER_WAIT_S = 60
TOPICS_PER_LOOK = 40


@asynccontextmanager
async def client_of(cluster: LocalCluster, *, timeout_ms: int = 10_000) -> AsyncIterator[Client]:
    async with Client(list(cluster.plan.discovery_endpoints), timeout_ms=timeout_ms) as client:
        yield client


async def prepare_namespace(client: Client, namespace: str = NAMESPACE) -> None:
    await client.create_tenant(namespace.partition("/")[0])
    await client.create_namespace(namespace)


async def wait_settled(client: Client) -> None:
    """Return once every shard is led by its first replica: then no leadership is moved."""
    async with timeout(LEADER_WAIT_S):
        while True:
            shards = (await client.cluster()).shards
            if shards and all(shard.leader_node == shard.replicas[0] for shard in shards):
                return
            await asyncio.sleep(0.1)


async def wait_brokers_used(
    cluster: LocalCluster, client: Client, namespace: str = NAMESPACE
) -> list[str]:
    """Return once every shard gives topics to every broker; return the topics it took to see it.

    A shard leases a broker's capacity a little after the broker is ready.
    """
    brokers = cluster.plan.of_kind("broker")
    names: list[str] = []
    async with timeout(LEADER_WAIT_S):
        while True:
            first = len(names)
            more = [f"persistent://{namespace}/used-{first + n}" for n in range(TOPICS_PER_LOOK)]
            await client.create_topics(more)
            places = await client.lookup(more)
            names += more
            used = {(place.shard_id, place.broker_id) for place in places if place.is_found}
            if len(used) == cluster.plan.size.shards * len(brokers):
                return names


async def busiest_shard_leader(client: Client) -> str:
    """Return the node that leads the most shards."""
    state = await client.cluster()
    led: dict[str, int] = {}
    for shard in state.shards:
        if shard.leader_node:
            led[shard.leader_node] = led.get(shard.leader_node, 0) + 1
    assert led, "no shard has a leader"
    return max(led, key=lambda node_id: (led[node_id], node_id))


async def manager_leader(cluster: LocalCluster) -> str:
    """Return the cluster manager that leads, waiting for an election if need be."""
    async with timeout(LEADER_WAIT_S):
        while True:
            for node in cluster.plan.of_kind("cluster-manager"):
                if cluster.is_running(node.node_id) and await _leads(node.grpc):
                    return node.node_id
            await asyncio.sleep(0.1)


async def _leads(endpoint: str) -> bool:
    async with member_channel(endpoint) as channel:
        stub = ClusterServiceStub(channel)
        try:
            status = await stub.GetManagerStatus(cluster_pb.GetManagerStatusRequest(), timeout=1)
        except grpc.aio.AioRpcError:
            return False
    return bool(status.role == "leader")
