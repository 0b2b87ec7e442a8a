"""Tenants on a cluster of little capacity: one takes whatever it is given, the others come late."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from nextgen.cli.local.plan import ClusterSize, make_plan_on_free_ports
from nextgen.client import Client, NewTopic
from nextgen.kernel.errors import Refused
from nextgen.kernel.governance.policies import Policies
from nextgen.tasks.timeouts import timeout
from tests.support.processes.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

CAPACITY = 400
SIZE = ClusterSize(
    cluster_managers=1, shard_nodes=1, discovery=1, brokers=2, shards=2, capacity_units=CAPACITY
)
TOPICS_QUIET = 30
"""More than a default share: the policy gives a tenth of what each shard has leased, some 40."""

SETTLED_S_MAX = 60
"""For leases that grow. Only a failing test waits that long."""


async def create(client: Client, tenant: str, count: int) -> list[str]:
    await client.create_tenant(tenant)
    await client.create_namespace(f"{tenant}/n")
    names = [f"persistent://{tenant}/n/t-{number}" for number in range(count)]
    await client.create_topics([NewTopic(name) for name in names])
    return names


async def codes(client: Client, names: Sequence[str]) -> Counter[str]:
    return Counter(location.rejection_code for location in await client.lookup(names))


async def take_all_that_is_given(client: Client, names: Sequence[str]) -> Counter[str]:
    """Look up all names until nothing changes any more: shards lease more as they need it."""
    async with timeout(SETTLED_S_MAX):
        found = await codes(client, names)
        while True:
            await asyncio.sleep(1.0)
            before, found = found, await codes(client, names)
            if found == before:
                return found


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_tenant_that_takes_all_it_is_given_leaves_another_its_share(tmp_path: Path) -> None:
    async with LocalCluster(make_plan_on_free_ports(SIZE), tmp_path) as cluster:
        await cluster.wait_ready()
        async with Client(cluster.plan.discovery_endpoints) as client:
            noisy = await create(client, "noisy", SIZE.brokers * CAPACITY + 100)
            quiet = await create(client, "quiet", TOPICS_QUIET)
            unknown = await create(client, "unknown", 2)
            await client.set_policies("quiet", Policies(capacity_share_percent=10))
            with pytest.raises(Refused, match=r"other tenants have 10 \(quiet 10\)"):
                await client.set_policies("noisy", Policies(capacity_share_percent=1))

            taken = await take_all_that_is_given(client, noisy)

            assert set(taken) == {"", "SHARE_EXCEEDED"}
            assert taken[""] <= 0.9 * SIZE.brokers * CAPACITY + SIZE.brokers * SIZE.shards
            assert await codes(client, quiet) == {"": TOPICS_QUIET}
            assert await codes(client, unknown) == {"": 2}
            print(f"noisy {taken}, of {SIZE.brokers * CAPACITY} units")
