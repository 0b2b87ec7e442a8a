"""What no single frame shows: commands whose cost is in the state that others made before.

Legal and the most expensive: schemas at their limit against many versions, and keys as long as
metadata may be for several Key_Shared subscriptions. The budget is that of ``test_stall_budget``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from nextgen.client import Client
from nextgen.kernel.governance.policies import Policies, SchemaCompatibility
from protos.pulsar.PulsarApi_pb2 import Schema
from tests.support.costs.key_shared import deliver_large_keys
from tests.support.costs.pulsar import Target
from tests.support.costs.schema_commands import is_accepted, register, state_schema
from tests.support.costs.schemas import CASES, versions
from tests.support.costs.stall_budget import (
    Measuring,
    ProbedCluster,
    judge,
    measure,
    probed_cluster,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

NAMESPACE = "stall/state"
KEY_SHARED_TOPIC = f"persistent://{NAMESPACE}/keys"
VERSIONS = 2
"""Of each case. Comparisons are turns of their own, so that more only take more turns."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProbedCluster]:
    async with probed_cluster(tmp_path_factory.mktemp("stalls")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(cluster: ProbedCluster) -> AsyncIterator[Client]:
    async with Client(list(cluster.plan.discovery_endpoints), timeout_ms=60_000) as connected:
        await connected.create_tenant("stall")
        await connected.create_namespace(NAMESPACE)
        yield connected


async def broker_of(cluster: ProbedCluster, client: Client, topic: str) -> Target:
    await client.create_topics([topic])
    await client.lookup([topic])
    node = cluster.plan.node("broker-1")
    return Target(node.host, node.pulsar_port, topic, is_broker=True)


async def set_strategy(
    cluster: ProbedCluster, client: Client, strategy: SchemaCompatibility
) -> None:
    """Set what versions must be compatible with; return when the broker applies it."""
    await client.set_policies(NAMESPACE, Policies(schema_compatibility=strategy))
    target = await broker_of(cluster, client, f"persistent://{NAMESPACE}/{strategy.name}")
    await register(target, Schema(name="s", type=Schema.Avro, schema_data=b'"string"'))
    expected = strategy is SchemaCompatibility.ALWAYS_COMPATIBLE
    for attempt in range(200):
        data = json.dumps({"type": "int", "doc": f"{attempt}"}).encode()
        other = Schema(name="s", type=Schema.Avro, schema_data=data)
        if await is_accepted(target, other) == expected:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"the broker never applied {strategy}")


async def test_no_schema_stalls_or_grows_though_it_is_compared_with_many_versions(
    cluster: ProbedCluster, client: Client
) -> None:
    measuring = Measuring(cluster, "broker-1")
    prepared = [
        (name, await broker_of(cluster, client, f"persistent://{NAMESPACE}/{name}"), case)
        for name, case in CASES.items()
    ]

    # Given: versions that were all accepted, because everything went with everything.
    await set_strategy(cluster, client, SchemaCompatibility.ALWAYS_COMPATIBLE)
    made = {name: versions(case, VERSIONS) for name, _, case in prepared}
    frames = [
        (f"version {number} of {name}", partial(register, target, schema))
        for name, target, _ in prepared
        for number, schema in enumerate(made[name][0])
    ]
    costs = await measure(measuring, frames)

    # When: one that is compared with all of them is stated by each command that can.
    await set_strategy(cluster, client, SchemaCompatibility.FULL_TRANSITIVE)
    costs += await measure(
        measuring,
        [
            (f"{how} with {name}", partial(state_schema, target, made[name][1], how))
            for name, target, _ in prepared
            for how in ("getOrCreateSchema", "producer", "subscribe", "getSchema")
        ],
    )

    judge(costs)


async def test_no_turn_of_key_shared_stalls_though_keys_are_long_and_subscriptions_many(
    cluster: ProbedCluster, client: Client
) -> None:
    target = await broker_of(cluster, client, KEY_SHARED_TOPIC)
    measuring = Measuring(cluster, "broker-1")

    costs = await measure(
        measuring, [("640 keys of 16 KB, 8 subscriptions", partial(deliver_large_keys, target))]
    )

    judge(costs)
