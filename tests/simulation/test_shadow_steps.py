"""Sources and shadows on a whole cluster, whose leaders are killed at every moment of an operation.

In virtual time: a moment is some messages long. ``tests/unit/shards/inventory/test_shadow_races``
has every step; here the steps go through the wire, and a log of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nextgen.client import Client, NewTopic
from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from nextgen.kernel.routing.slots import initial_table
from tests.simulation.test_cluster_scenarios import Told, leader_of, names, tell
from tests.support.cluster_simulation.components import ClusterPlan

SHARDS = [1, 2]
MOMENTS_S = (0.0005, 0.002, 0.005, 0.01, 0.03)
"""From the beginning of an operation to a crash."""
REPAIR_S = 4.0

PLAN = ClusterPlan(managers=1, shard_nodes=4, discovery_nodes=1, brokers=1)


def at_shard(shard_id: int, count: int) -> list[str]:
    table = initial_table(SHARDS)
    found = [
        name
        for name in names(0, 100)
        if table.shard_for_key(parse_topic(name).routing_key) == shard_id
    ]
    return found[:count]


async def create_shadow(client: Client, name: str, source: str, partitions: int) -> None:
    """Create a shadow; it may be there. Raises ``Refused`` if it cannot be."""
    (created,) = await client.create_topics(
        [NewTopic(name, partitions, {SHADOW_SOURCE_PROPERTY: source})]
    )
    if created.rejection_code and created.rejection_code != "ALREADY_EXISTS":
        raise Refused(created.rejection_code, created.message)


async def partitions_of(client: Client, name: str) -> int | None:
    topic = await repeated(lambda: client.get_topic(name))
    return None if topic is None else topic.partitions


async def repeated(operation: Callable[[], Awaitable[object]]) -> object:
    """Carry ``operation`` out, repeated until it is done, or refused for good."""
    while True:
        try:
            return await operation()
        except Refused as refused:
            if "try again later" not in str(refused):
                raise
        except MetadataError:
            pass
        await asyncio.sleep(0.2)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", SHARDS, ids=["source's leader", "shadow's leader"])
def test_a_leader_that_dies_during_any_operation_breaks_no_rule_of_shadows(victim: int) -> None:
    """For each moment: 1. a shadow is created, the source and its shadows grow, the source is to be
    deleted, a shadow goes, the source goes; 2. at that moment of each, a leader dies; 3. the
    operation is repeated until it is answered; 4. both topics are as the answer says."""

    async def story(told: Told, client: Client) -> None:
        cluster = told.cluster
        (source,), (shadow,) = at_shard(1, 1), at_shard(2, 1)

        async def disturbed(moment_s: float, operation: Callable[[], Awaitable[object]]) -> None:
            running = asyncio.ensure_future(repeated(operation))
            await asyncio.sleep(moment_s)
            node = cluster.nodes[leader_of(cluster, victim)]
            node.crash(power_cut=False)
            try:
                await running
            finally:
                node.start()
                await asyncio.sleep(REPAIR_S)

        for moment_s in MOMENTS_S:
            await client.create_topics([NewTopic(source, 2)])
            await disturbed(moment_s, lambda: create_shadow(client, shadow, source, 2))
            await disturbed(moment_s, lambda: client.update_partitions(source, 4))
            assert await partitions_of(client, source) == 4
            assert await partitions_of(client, shadow) == 4
            with pytest.raises(Refused, match="has shadows"):
                await disturbed(moment_s, lambda: client.delete_topic(source, force=True))
            assert await partitions_of(client, source) == 4
            await repeated(lambda: client.set_shadows(source, [shadow]))
            await disturbed(moment_s, lambda: gone(client, shadow))
            assert await partitions_of(client, shadow) is None
            assert await repeated(lambda: client.get_shadows(source)) == []
            await disturbed(moment_s, lambda: gone(client, source))
            assert await partitions_of(client, source) is None
            with pytest.raises(Refused, match="does not exist"):
                await repeated(lambda: create_shadow(client, shadow, source, 2))

    tell(PLAN, story)


async def gone(client: Client, name: str) -> None:
    try:
        await client.delete_topic(name, force=True)
    except Refused as refused:
        if refused.code != "NOT_FOUND":
            raise
