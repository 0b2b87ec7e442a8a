"""Rules, pins and the chain behind a place, on a cluster of three brokers and four shards."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
from nextgen.cli.topics.policy_commands import alter_policies
from nextgen.runtime.security.cluster_proof import environment_of_child
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.policies_pb2 import Policies
from protos.nextgen.v1.shard_service_pb2 import TopicMove, TopicSpec
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

pytestmark = pytest.mark.integration

SIZE = ClusterSize(1, 1, 1, brokers=3, shards=4)
NAMESPACE = "acme/orders"
TOPIC = f"persistent://{NAMESPACE}/paid"
ROUNDS = 4
TOPICS_PER_ROUND = 50
EQUAL_TOPICS = 500
MAX_OVER_MEAN = 1.10
SETTLED_S_MAX = 60
"""For what passes by itself. Only a failing test waits that long."""
LOOK_S = 0.25


async def nextgen(cluster: LocalCluster, *arguments: str) -> dict[str, Any]:
    """Run a command that must succeed and return what it printed."""
    ended = await asyncio.to_thread(
        run_warm,
        "nextgen",
        [*arguments, "--json", "--target", cluster.plan.of_kind("discovery")[0].grpc],
        environment=environment_of_child(os.environ),
        timeout_s=SETTLED_S_MAX,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


async def create(client: DiscoveryClient, names: Sequence[str]) -> None:
    topics = [TopicSpec(name=name) for name in names]
    request = pb.CreateTopicsRequest(command_id=new_command_id(), topics=topics)
    response = await client.call("CreateTopics", request)
    assert not any(outcome.rejection_code for outcome in response.topics)


async def places(client: DiscoveryClient, names: Sequence[str]) -> list[LookupAnswer]:
    """Return the answers; what is retryable is asked for again."""
    async with timeout(SETTLED_S_MAX):
        while True:
            response = await client.call("Lookup", pb.LookupRequest(topics=names))
            refused = [answer for answer in response.answers if answer.rejection_code]
            assert all(answer.retryable for answer in refused), refused
            if not refused:
                return list(response.answers)
            await asyncio.sleep(LOOK_S)


async def owners(client: DiscoveryClient, names: Sequence[str]) -> list[str]:
    """Return who serves each."""
    return [answer.broker_id for answer in await places(client, names)]


async def owner(client: DiscoveryClient) -> str:
    (broker_id,) = await owners(client, [TOPIC])
    return broker_id


async def owner_behind(client: DiscoveryClient, killed: str) -> str:
    """Return who serves the topic once the end of its broker has been noticed."""
    async with timeout(SETTLED_S_MAX):
        while (found := await owner(client)) == killed:
            await asyncio.sleep(LOOK_S)
    return found


async def check_effective_rules(client: DiscoveryClient) -> None:
    """No topic is placed by a rule that was replaced before, by none of the shards."""
    for number in range(ROUNDS):
        wanted = f"broker-{1 + number % 3}"

        def alter(policies: Policies, wanted: str = wanted) -> None:
            policies.placement.ClearField("pinned_brokers")
            policies.placement.pinned_brokers.append(wanted)

        names = [f"persistent://{NAMESPACE}/r{number}-{each}" for each in range(TOPICS_PER_ROUND)]
        await create(client, names)
        await alter_policies(client, NAMESPACE, alter, effective=True)
        assert set(await owners(client, names)) == {wanted}
    await alter_policies(client, NAMESPACE, lambda policies: policies.Clear(), effective=True)


async def check_even_spread(client: DiscoveryClient) -> None:
    """Of all topics: the first go where capacity has been leased by then, in each shard."""
    names: list[str] = []
    used: set[tuple[int, str]] = set()
    while len(used) < SIZE.brokers * SIZE.shards:
        first = [f"persistent://{NAMESPACE}/f{len(names) + n}" for n in range(TOPICS_PER_ROUND)]
        await create(client, first)
        used |= {(answer.shard_id, answer.broker_id) for answer in await places(client, first)}
        names += first
    equal = [f"persistent://{NAMESPACE}/equal-{number}" for number in range(EQUAL_TOPICS)]
    await create(client, equal)
    names += equal
    counts = Counter(await owners(client, names))
    assert max(counts.values()) * SIZE.brokers <= MAX_OVER_MEAN * len(names), counts


async def check_pins_and_reasons(cluster: LocalCluster, client: DiscoveryClient) -> None:
    await create(client, [TOPIC])
    first = await owner(client)
    second, third = sorted({"broker-1", "broker-2", "broker-3"} - {first})

    pinned = await nextgen(cluster, "topics", "pin", TOPIC, second)
    assert [move["broker_id"] for move in pinned["moves"]] == [second]
    assert await owner(client) == second
    again = await nextgen(cluster, "topics", "pin", TOPIC, second, third)
    assert again["moves"] == [], "it is where it may be"
    refused = await client.call(
        "MoveTopics", pb.MoveTopicsRequest(moves=[TopicMove(topic=TOPIC, target_broker_id=first)])
    )
    assert refused.answers[0].rejection_code == "NOT_ALLOWED"
    await cluster.kill(second)
    assert await owner_behind(client, second) == third
    await nextgen(cluster, "topics", "unpin", TOPIC)
    moved = await client.call(
        "MoveTopics", pb.MoveTopicsRequest(moves=[TopicMove(topic=TOPIC, target_broker_id=first)])
    )
    assert moved.answers[0].broker_id == first

    chain = await nextgen(cluster, "topics", "why", TOPIC)
    assert (chain["broker_id"], chain["epoch"]) == (first, 4)
    whats = [step["what"] for step in chain["steps"]]
    assert whats[:4] == [
        "created",
        f"assigned to {first}, epoch 1",
        f"rules of {TOPIC}: pinned_brokers {second}",
        f"assigned to {second}, epoch 2, from {first}",
    ]
    assert f"session of {second} ended" in whats
    lost = next(step for step in chain["steps"] if "epoch 3" in step["what"])
    assert "session had ended; the rules name the brokers" in lost["why"]
    assert lost["compared"][0].startswith(f"{third}: ")
    assert whats[-1] == f"assigned to {first}, epoch 4, from {third}"


@pytest.mark.timeout(120)
async def test_rules_pins_and_the_reasons_behind_a_place(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, SIZE) as cluster:
        nodes = [cluster.plan.of_kind("discovery")[0].grpc]
        async with DiscoveryClient(nodes) as client:
            tenant = pb.CreateTenantRequest(command_id=new_command_id(), name="acme")
            await client.call("CreateTenant", tenant)
            namespace = pb.CreateNamespaceRequest(command_id=new_command_id(), name=NAMESPACE)
            await client.call("CreateNamespace", namespace)
            await check_even_spread(client)
            await check_effective_rules(client)
            await check_pins_and_reasons(cluster, client)
