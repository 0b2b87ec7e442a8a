"""The leader splits a shard that has been too full for a while, if the settings say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nextgen.kernel.limits.placement import SHARD_FULL_MS, SHARD_SIZE_STALE_MS, SHARD_SIZES_MS
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import events_pb2 as events_pb
from tests.unit.cluster_manager.fakes import (
    ManagerUnderTest,
    heartbeat,
    leader,
    settle,
)


@pytest.fixture
async def one(tmp_path: Path) -> Iterator[ManagerUnderTest]:
    manager = ManagerUnderTest(tmp_path)
    yield manager
    manager.manager.stop()
    await manager.log.stop()


async def override(one: ManagerUnderTest, value: str, version: int = 1) -> None:
    configuration = events_pb.ConfigurationSet(
        version=version, settings=[events_pb.Setting(name="shardTopicsMax", value=value)]
    )
    request = cluster_pb.SetConfigurationRequest(configuration=configuration)
    await one.manager.set_configuration(request)


async def wait(one: ManagerUnderTest, ms: int, topics: int | None) -> str:
    """Let time pass while the nodes report sizes; return the plans' kinds and shards."""
    for _ in range(ms // 1_000):
        one.clock.advance(1_000)
        for node in tuple(one.manager.leader_term.connections.values()):
            one.manager.receive(node, heartbeat(1))
            if topics is not None and node.node_id == "a":
                size = cluster_pb.ShardSize(shard_id=1, term=3, topics=topics, rows=2 * topics)
                report = cluster_pb.ShardSizes(shards=[size])
                one.manager.receive(node, cluster_pb.NodeMessage(shard_sizes=report))
        await settle()
    plans = one.manager.leader_term.committed.plans.plans.values()
    return ", ".join(f"{plan.kind} {plan.phase} {plan.reason}" for plan in plans)


async def joined(one: ManagerUnderTest) -> None:
    a, b = await one.join_shard_nodes()
    one.manager.receive(a, leader(1, 3, "a"))
    one.manager.receive(b, leader(2, 3, "b"))
    await settle()


async def test_a_full_shard_is_split_after_five_minutes(one: ManagerUnderTest) -> None:
    await joined(one)
    await override(one, "1000")

    assert await wait(one, SHARD_FULL_MS - SHARD_SIZES_MS, topics=1_500) == ""
    planned = await wait(one, 3 * SHARD_SIZES_MS, topics=1_500)

    assert planned == "split running shard 1 has 1,500 topics and 0 commands a second"
    (plan,) = one.manager.leader_term.committed.plans.plans.values()
    assert plan.is_automatic
    assert plan.added == (3,)


async def test_nothing_is_split_while_the_setting_is_off(one: ManagerUnderTest) -> None:
    await joined(one)

    assert await wait(one, 2 * SHARD_FULL_MS, topics=1_000_000) == ""
    await override(one, "1000")
    assert await wait(one, SHARD_FULL_MS // 2, topics=1_000_000) == "", "it was not watched before"


async def test_a_size_that_is_not_reported_any_more_does_not_count(one: ManagerUnderTest) -> None:
    await joined(one)
    await override(one, "1000")
    await wait(one, SHARD_FULL_MS // 2, topics=1_500)

    assert await wait(one, SHARD_SIZE_STALE_MS + SHARD_FULL_MS, topics=None) == ""


async def test_a_split_that_is_not_possible_leaves_the_cluster_as_it_is(
    one: ManagerUnderTest,
) -> None:
    await joined(one)
    await override(one, "1000")
    b = one.manager.leader_term.connections["b"]
    one.manager.leave(b)

    # One node is there, and a shard has two replicas.
    assert await wait(one, 2 * SHARD_FULL_MS, topics=1_500) == ""
