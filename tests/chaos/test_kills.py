"""Processes are killed with SIGKILL under load; what was acknowledged must be there afterwards."""

from __future__ import annotations

import asyncio
import json
from itertools import cycle

import pytest

from nextgen.cli.local.plan import ClusterSize
from nextgen.client import Client
from nextgen.kernel.errors import MetadataError
from nextgen.tasks.groups import TaskGroup
from nextgen.tasks.timeouts import timeout
from tests.support.callers.chaos_load import Ledger, assert_ledger_holds, write_until
from tests.support.callers.cluster_questions import (
    NAMESPACE,
    busiest_shard_leader,
    client_of,
    manager_leader,
    prepare_namespace,
)
from tests.support.processes.local_cluster import running_cluster

KILLS = 20
WRITERS = 4
OPERATIONS_MIN = 50
LOOKUPS_MIN = 100
CALL_MS_MAX = 12_000
"""For one call, also where a replica that is needed stands still for seconds and a leader is
elected behind that. Calls to a shard without quorum take all of it."""

pytestmark = pytest.mark.timeout(400)


@pytest.mark.slow  # ``nextgen chaos`` kills as many in three minutes, and judges more.
async def test_nothing_acknowledged_is_lost_over_twenty_kills_of_leaders(tmp_path, capsys):
    ledger = Ledger()
    stop = asyncio.Event()
    killed: list[str] = []
    async with (
        running_cluster(tmp_path, ClusterSize(brokers=1)) as cluster,
        client_of(cluster, timeout_ms=8_000) as client,
    ):
        await prepare_namespace(client)
        async with TaskGroup() as tasks:
            for writer in range(WRITERS):
                tasks.create_task(
                    write_until(stop, client, ledger, namespace=NAMESPACE, writer=writer)
                )
            kinds = cycle(("shard", "shard", "manager"))
            for _ in range(KILLS):
                before = ledger.operations
                kind = next(kinds)
                victim = await (
                    busiest_shard_leader(client) if kind == "shard" else manager_leader(cluster)
                )
                await cluster.kill(victim)
                killed.append(victim)
                await asyncio.sleep(0.7)  # The others elect and go on before it returns.
                await cluster.start_node(victim)
                await cluster.wait_ready([victim])
                async with timeout(20):
                    while ledger.operations == before:
                        await asyncio.sleep(0.05)
            stop.set()

        await assert_ledger_holds(client, ledger, namespace=NAMESPACE)

    with capsys.disabled():
        print(
            json.dumps(
                {
                    "kills": len(killed),
                    "acknowledged": ledger.operations,
                    "unknown": len(ledger.unknown),
                    "lost": 0,
                    "gap_s_max": round(ledger.gap_s_max, 2),
                }
            )
        )
    assert len(killed) >= KILLS
    assert ledger.operations > 10 * KILLS, "too little was written to prove anything"


async def test_a_follower_that_dies_costs_no_error(tmp_path):
    size = ClusterSize(cluster_managers=1, discovery=1, brokers=1, shards=1)
    ledger = Ledger()
    stop = asyncio.Event()
    async with running_cluster(tmp_path, size) as cluster, client_of(cluster) as client:
        await prepare_namespace(client)
        leader = (await client.cluster()).shards[0].leader_node
        follower = next(
            node.node_id for node in cluster.plan.of_kind("shard-node") if node.node_id != leader
        )
        async with TaskGroup() as tasks:
            tasks.create_task(write_until(stop, client, ledger, namespace=NAMESPACE, writer=0))
            await asyncio.sleep(1)
            await cluster.kill(follower)
            await asyncio.sleep(3)
            await cluster.start_node(follower)
            await cluster.wait_ready([follower])
            await asyncio.sleep(1)
            async with timeout(60):
                while ledger.operations <= OPERATIONS_MIN:
                    await asyncio.sleep(0.05)
            stop.set()

        await assert_ledger_holds(client, ledger, namespace=NAMESPACE)

    assert ledger.errors == []


async def test_both_discovery_nodes_give_the_same_answers(tmp_path):
    size = ClusterSize(cluster_managers=1, shard_nodes=1, brokers=2, shards=2)
    async with running_cluster(tmp_path, size) as cluster, client_of(cluster) as client:
        await prepare_namespace(client)
        names = [f"persistent://{NAMESPACE}/t-{i}" for i in range(100)]
        await client.create_topics(names)

        answers = []
        for endpoint in cluster.plan.discovery_endpoints:
            async with Client([endpoint]) as one:
                answers.append(await one.lookup(names))

    first, second = ([(a.broker_id, a.epoch, a.topic_id) for a in node] for node in answers)
    assert first == second
    assert len(first) == 100


async def test_killing_a_discovery_node_costs_at_most_one_percent_in_that_second(tmp_path):
    """Clients use both nodes; one node dies.

    1. each client looks up without retries of its own beyond the library's fail-over;
    2. a node is killed: in the second of the kill at most 1 % of the lookups fail;
    3. after that second none does.
    """
    size = ClusterSize(cluster_managers=1, shard_nodes=1, brokers=1, shards=1)
    loop = asyncio.get_running_loop()
    done: list[tuple[float, bool]] = []
    stop = asyncio.Event()

    async def look_up(client: Client, names: list[str]) -> None:
        while not stop.is_set():
            try:
                answers = await client.lookup(names[:8])
                good = all(answer.is_found for answer in answers)
            except MetadataError:
                good = False
            done.append((loop.time(), good))

    async with running_cluster(tmp_path, size) as cluster, client_of(cluster) as client:
        await prepare_namespace(client)
        names = [f"persistent://{NAMESPACE}/t-{i}" for i in range(8)]
        await client.create_topics(names)
        await client.lookup(names)
        endpoints = list(cluster.plan.discovery_endpoints)
        clients = [Client(endpoints) for _ in range(8)]
        async with TaskGroup() as tasks:
            for one in clients:
                tasks.create_task(look_up(one, names))
            await asyncio.sleep(2)
            killed_at = loop.time()
            await cluster.kill("discovery-1")
            gone_at = loop.time()
            await asyncio.sleep(4)
            async with timeout(60):
                while len([at for at, _ in done if at >= gone_at + 1]) <= LOOKUPS_MIN:
                    await asyncio.sleep(0.5)
            stop.set()
        for one in clients:
            await one.close()

    in_that_second = [good for at, good in done if killed_at <= at < gone_at + 1]
    after = [good for at, good in done if at >= gone_at + 1]
    assert in_that_second.count(False) <= 0.01 * len(in_that_second)
    assert after.count(False) == 0
    assert len(after) > LOOKUPS_MIN


async def test_a_shard_without_quorum_confines_its_errors_and_recovers_alone(tmp_path):
    size = ClusterSize(cluster_managers=1, shard_nodes=5, discovery=1, brokers=1, shards=5)
    async with (
        running_cluster(tmp_path, size) as cluster,
        client_of(cluster, timeout_ms=CALL_MS_MAX) as client,
    ):
        await prepare_namespace(client)
        names = [f"persistent://{NAMESPACE}/t-{i}" for i in range(60)]
        created = await client.create_topics(names)
        assert all(topic.is_created for topic in created)
        shard_of = {a.topic: a.shard_id for a in await client.lookup(names)}
        state = await client.cluster()
        victims = list(state.shards[0].replicas[:2])
        without_quorum = {
            s.shard_id for s in state.shards if len(set(s.replicas) & set(victims)) == 2
        }
        assert without_quorum
        assert len(without_quorum) < len(state.shards)

        for victim in victims:
            await cluster.kill(victim)
        async with timeout(60):
            for name in names:
                if shard_of[name] not in without_quorum:
                    await _until_accepted(client, name, "before")
        outcomes = await asyncio.gather(
            *(client.set_topic_properties(name, {"seen": "during"}) for name in names),
            return_exceptions=True,
        )
        failed = {
            shard_of[name]
            for name, outcome in zip(names, outcomes, strict=True)
            if isinstance(outcome, BaseException)
        }
        assert failed == without_quorum

        for victim in victims:
            await cluster.start_node(victim)
        await cluster.wait_ready(victims)
        async with timeout(60):
            for name in names:
                await _until_accepted(client, name, "after")


async def _until_accepted(client: Client, name: str, seen: str) -> None:
    while True:
        try:
            await client.set_topic_properties(name, {"seen": seen})
        except MetadataError:
            await asyncio.sleep(0.1)
        else:
            return
