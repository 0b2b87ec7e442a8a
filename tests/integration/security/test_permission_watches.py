"""Permissions of a running cluster, as nodes follow them: a revocation that is answered holds."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nextgen.cli.local.local_tokens import KEY_FILE, TOKEN_FILE, TOKENS
from nextgen.cli.local.plan import NodePlan, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.client.changes.shard_watch import ShardWatch
from nextgen.kernel.errors import Forbidden, MetadataError
from nextgen.kernel.governance.access import Action, Principal, Resource
from nextgen.kernel.governance.access_rules import AccessRules
from nextgen.kernel.governance.permissions import AuthAction, Permission
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.shard_service_pb2 import WatchShardUpdate
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandLookupTopic,
    CommandLookupTopicResponse,
)
from tests.support.callers.role_proofs import token_of
from tests.support.permissions.nodes import DecidingNode, deciding_nodes
from tests.support.processes.local_cluster import (
    MINIMAL,
    ClusterSize,
    LocalCluster,
    running_cluster,
)

ADA = Principal("ada")
TENANT = "acme"
NAMESPACE = f"{TENANT}/orders"
TOPIC = f"persistent://{NAMESPACE}/paid"
PAID = Resource.topic(TOPIC)
MAY_PRODUCE = Policies(permissions=(Permission("ada", (AuthAction.PRODUCE,)),))
RULES = AccessRules(frozenset({"root"}))
NODES = ("discovery-9", "broker-9")
_LATE_S = 0.15
TWO_DOORS = ClusterSize(1, 1, 2, 1, shards=1)
FAILOVER = ClusterSize(1, 3, 1, 1, shards=1)


@pytest.fixture(autouse=True)
def updates_arrive_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers to writers arrive earlier than updates to nodes: only waiting for these helps."""
    read = ShardWatch._read

    async def read_late(*arguments: Any) -> WatchShardUpdate:
        update = await read(*arguments)
        await asyncio.sleep(_LATE_S)
        return update

    monkeypatch.setattr(ShardWatch, "_read", read_late)


class Producer:
    """A connection at a node that goes on producing."""

    def __init__(self, node: DecidingNode) -> None:
        self.reasons: list[str] = []
        self.access = node.table.session(ADA, self.reasons.append)

    async def begin(self) -> None:
        await self.access.check(Action.PRODUCE, PAID)
        self.access.keep(Action.PRODUCE, PAID)
        await self.access.check(Action.LOOK_UP, PAID)
        assert self.access.lookable == {b"persistent://acme/orders"}


def writer(cluster: LocalCluster) -> Client:
    return Client(cluster.plan.discovery_endpoints, timeout_ms=30_000, effective=True)


async def prepare(client: Client) -> None:
    await client.create_tenant(TENANT, {"adminRoles": json.dumps(["boss"])})
    await client.create_namespace(NAMESPACE)
    await client.create_topics([TOPIC])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def minimal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with running_cluster(tmp_path_factory.mktemp("cluster"), MINIMAL) as cluster:
        yield cluster


@asynccontextmanager
async def decided_in(cluster: LocalCluster) -> AsyncIterator[tuple[Client, list[DecidingNode]]]:
    """Return a writer and new nodes, with the names made anew, which are gone at the end."""
    async with (
        writer(cluster) as client,
        deciding_nodes(cluster.plan.manager_endpoints, *NODES, rules=RULES) as nodes,
    ):
        await prepare(client)
        yield client, nodes
        async for topic in client.list_topics(NAMESPACE):
            await client.delete_topic(topic.name)
        await client.delete_namespace(NAMESPACE)
        await client.delete_tenant(TENANT)


async def nothing_is_allowed(nodes: list[DecidingNode], producers: list[Producer]) -> None:
    """Check it at once: behind the answer nothing may be allowed for a moment."""
    for node, producer in zip(nodes, producers, strict=True):
        assert node.table.may_now(ADA, Action.PRODUCE, PAID) is not True
        assert producer.access.lookable == set()
        assert len(producer.reasons) == 1
    for node in nodes:
        with pytest.raises(Forbidden):
            await node.table.check(ADA, Action.PRODUCE, PAID)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", [NAMESPACE, TOPIC])
async def test_an_answered_revocation_holds_at_every_node(minimal: LocalCluster, name: str) -> None:
    async with decided_in(minimal) as (client, nodes):
        for _ in range(4):
            await client.set_policies(name, MAY_PRODUCE)
            producers = [Producer(node) for node in nodes]
            for each in producers:
                await each.access.check(Action.PRODUCE, PAID)
                each.access.keep(Action.PRODUCE, PAID)
            await client.set_policies(name, NO_POLICIES)
            await nothing_is_allowed(nodes, producers)


@pytest.mark.asyncio(loop_scope="module")
async def test_admins_of_a_tenant_go_when_that_is_answered_and_namespaces_when_deleted(
    minimal: LocalCluster,
) -> None:
    boss = Principal("boss")
    async with decided_in(minimal) as (client, nodes):
        for node in nodes:
            await node.table.check(boss, Action.DELETE, Resource.namespace(NAMESPACE))
        await client.set_tenant_properties("acme", {"adminRoles": "[]"})
        for node in nodes:
            answer = node.table.may_now(boss, Action.DELETE, Resource.namespace(NAMESPACE))
            assert answer is False

        await client.delete_topic(TOPIC)
        await client.set_policies(NAMESPACE, MAY_PRODUCE)
        producers = [Producer(node) for node in nodes]
        for each in producers:
            await each.begin()
        await client.delete_namespace(NAMESPACE)
        await nothing_is_allowed(nodes, producers)
        await client.create_namespace(NAMESPACE)
        with pytest.raises(Forbidden):
            await nodes[0].table.check(ADA, Action.PRODUCE, PAID)
        await client.set_policies(NAMESPACE, MAY_PRODUCE)
        await nodes[0].table.check(ADA, Action.PRODUCE, PAID)


async def test_a_revocation_behind_the_loss_of_a_leader_holds_when_it_is_answered(
    tmp_path: Path,
) -> None:
    async with (
        running_cluster(tmp_path, FAILOVER) as cluster,
        writer(cluster) as client,
        deciding_nodes(cluster.plan.manager_endpoints, *NODES, rules=RULES) as nodes,
    ):
        await prepare(client)
        await client.set_policies(NAMESPACE, MAY_PRODUCE)
        producers = [Producer(node) for node in nodes]
        for each in producers:
            await each.begin()
        leader = (await client.cluster()).shards[0].leader_node
        await cluster.kill(leader)
        async with timeout(60):
            while True:
                try:
                    await client.set_policies(NAMESPACE, NO_POLICIES)
                    break
                except MetadataError:
                    await asyncio.sleep(0.05)
        await nothing_is_allowed(nodes, producers)


async def test_a_node_that_stood_still_decides_nothing_by_what_it_knew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(make_plan_on_free_ports(TWO_DOORS, cluster_id="test"), authentication=TOKENS)
    still, other = plan.of_kind("discovery")
    async with LocalCluster(plan, tmp_path) as cluster:
        await cluster.wait_ready()
        monkeypatch.setenv("NEXTGEN_TOKEN", (tmp_path / TOKEN_FILE).read_text().strip())
        async with Client([other.grpc], timeout_ms=30_000, effective=True) as client:
            await prepare(client)
            for _ in range(2):
                await client.set_policies(NAMESPACE, MAY_PRODUCE)
                async with await connected(still, tmp_path) as connection:
                    assert await found(connection) == CommandLookupTopicResponse.Connect
                    cluster.strike(still.node_id, signal.SIGSTOP)
                    try:
                        await client.set_policies(NAMESPACE, NO_POLICIES)
                        # They wait in its socket: it reads them before it hears any shard.
                        asking = [asyncio.ensure_future(found(connection)) for _ in range(20)]
                        await asyncio.sleep(0.1)
                    finally:
                        cluster.strike(still.node_id, signal.SIGCONT)
                    answers = await asyncio.gather(*asking)
                    assert set(answers) == {CommandLookupTopicResponse.Failed}


async def connected(node: NodePlan, data_dir: Path) -> PulsarClientConnection:
    """Return a connection of ada to a node."""
    secret = (data_dir / KEY_FILE).read_bytes()
    greeting = CommandConnect(
        client_version="test",
        protocol_version=20,
        auth_method_name="token",
        auth_data=token_of("ada", secret=secret),
    )
    host, _, port = node.pulsar.rpartition(":")
    return await PulsarClientConnection.open(host, int(port), connect=greeting)


async def found(connection: PulsarClientConnection) -> int:
    """Return how a lookup of the topic is answered."""
    lookup = CommandLookupTopic(topic=TOPIC, authoritative=False)
    command = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=lookup)
    answer = await connection.request(command, timeout_ms=20_000)
    return answer.lookupTopicResponse.response
