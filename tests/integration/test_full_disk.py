"""A full disk stops acknowledgements, corrupts nothing, and is over when there is space again.

The nodes' data is on disks of their own, small enough to be filled. Where mounting is not
permitted these tests are skipped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nextgen.cli.local.plan import MINIMAL, ClusterSize, make_plan_on_free_ports
from nextgen.client import Client, NewTopic
from nextgen.kernel.errors import DeadlineExceeded, Indefinite, MetadataError, RefusesToStart
from nextgen.kernel.limits.cluster import DISK_RESERVE_BYTES, PROPERTY_VALUE_BYTES_MAX
from nextgen.tasks.timeouts import timeout
from tests.support.callers.cluster_questions import NAMESPACE, client_of, prepare_namespace
from tests.support.callers.replica_questions import leader_and_followers, wait_caught_up
from tests.support.processes.local_cluster import LocalCluster
from tests.support.processes.small_disks import MIB, MountRefused, SmallDisk, small_disks

THREE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=1, shards=1)
DISK_MIB = 200
RECOVERED_S_MAX = 60
NOTICED_S_MAX = 60
LOOKS_MAX = 2
HASTY_MS = 5_000
"""For what must not be acknowledged, and is tried again until then."""
BATCH = 100
LARGE = {str(number): "x" * (PROPERTY_VALUE_BYTES_MAX - 8) for number in range(4)}
MORE_THAN_A_JOURNAL_FILE = 1_200


@dataclass
class Site:
    """A cluster whose shard nodes have small disks, and what it acknowledged."""

    cluster: LocalCluster
    client: Client
    hasty: Client
    disks: dict[str, SmallDisk]
    acknowledged: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)

    async def create(self, prefix: str, count: int = BATCH) -> None:
        """Create topics of 16 KiB each; all of them must be acknowledged."""
        await self._create(self.client, prefix, count)

    async def try_to_create(self, prefix: str, count: int = BATCH) -> None:
        """The same, but not for long."""
        await self._create(self.hasty, prefix, count)

    async def _create(self, client: Client, prefix: str, count: int) -> None:
        names = [f"persistent://{NAMESPACE}/{prefix}-{number}" for number in range(count)]
        for start in range(0, count, BATCH):
            batch = names[start : start + BATCH]
            self.tried.update(batch)
            created = await client.create_topics(
                [NewTopic(name, properties=LARGE) for name in batch]
            )
            assert all(each.is_created for each in created)
            self.acknowledged.update(batch)

    async def refusal(self, prefix: str) -> MetadataError:
        """Try to create; return why it is not acknowledged.

        An answer that came too late says nothing of that: then it is tried again.
        """
        async with timeout(NOTICED_S_MAX):
            while True:
                with pytest.raises(MetadataError) as refused:
                    await self.try_to_create(prefix, 1)
                if not isinstance(refused.value, DeadlineExceeded):
                    return refused.value

    async def check_reads(self) -> None:
        """What was acknowledged can be read, listed and looked up."""
        name = min(self.acknowledged)
        assert await self.client.get_topic(name) is not None
        assert await self.topics() >= self.acknowledged
        assert [location.broker_id for location in await self.client.lookup([name])] == ["broker-1"]

    async def check_nothing_lost(self) -> None:
        present = await self.topics()
        assert present >= self.acknowledged
        assert present <= self.tried

    async def topics(self) -> set[str]:
        return {topic.name async for topic in self.client.list_topics(NAMESPACE)}

    async def recover(self, prefix: str) -> None:
        """Return when writes are taken again: within a bounded time, without any help."""
        await within(RECOVERED_S_MAX, lambda: self.try_to_create(prefix, 1))


async def within(seconds: float, attempt: Callable[[], Awaitable[None]]) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await attempt()
        except MetadataError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.1)


async def in_trouble(site: Site, node_ids: Collection[str]) -> None:
    """Return when the nodes have noticed that their disks are full."""
    async with timeout(NOTICED_S_MAX):
        for node_id in node_ids:
            while "takes no writes here" not in site.cluster.log_path(node_id).read_text():
                await asyncio.sleep(0.05)


async def started(directory: Path, size: ClusterSize) -> AsyncIterator[Site]:
    plan = make_plan_on_free_ports(size, cluster_id="test")
    nodes = [node.node_id for node in plan.of_kind("shard-node")]
    try:
        with small_disks(*(directory / node for node in nodes), size_mib=DISK_MIB) as disks:
            async with LocalCluster(plan, directory) as cluster:
                await cluster.wait_ready()
                async with (
                    client_of(cluster, timeout_ms=60_000) as client,
                    client_of(cluster, timeout_ms=HASTY_MS) as hasty,
                ):
                    await prepare_namespace(client)
                    site = Site(cluster, client, hasty, dict(zip(nodes, disks, strict=True)))
                    await site.create("before")
                    await client.lookup([min(site.acknowledged)])
                    yield site
    except MountRefused as refused:
        pytest.skip(f"no small disks: {refused}")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async for site in started(tmp_path, THREE):
        yield site


@pytest.fixture
async def single(tmp_path: Path) -> AsyncIterator[Site]:
    async for site in started(tmp_path, MINIMAL):
        yield site


async def leader_of(site: Site) -> str:
    return (await leader_and_followers(site.cluster))[0]


def tracebacks(site: Site) -> list[str]:
    return [
        line[:1_000]
        for node_id in site.disks
        for line in site.cluster.log_path(node_id).read_text().splitlines()
        if "Traceback" in line or '"critical"' in line
    ]


@pytest.mark.slow
@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_one_full_disk_costs_nothing_but_that_replica(site: Site, role: str) -> None:
    """1. One node's disk is filled at once, to the last byte.
    2. More is written than its journal has room for: the other two carry it.
    3. It is killed and started again with its disk full: that disturbs nobody.
    4. There is space again: it catches up, and can replace one of the others.
    """
    leader, followers = await leader_and_followers(site.cluster)
    full = leader if role == "leader" else followers[0]
    healthy = [node_id for node_id in site.disks if node_id != full]

    site.disks[full].fill()
    await in_trouble(site, [full])
    await site.create("meanwhile", MORE_THAN_A_JOURNAL_FILE)
    await site.check_reads()
    await site.cluster.restart(full)
    await site.create("without")
    assert await leader_of(site) in healthy

    site.disks[full].free()
    await start_those_that_ended(site)
    leader = await leader_of(site)
    await wait_caught_up(site.cluster, full, leader)
    await site.cluster.kill(next(node_id for node_id in healthy if node_id != leader))
    await site.recover("after")
    await site.check_nothing_lost()
    assert tracebacks(site) == []


@pytest.mark.slow
async def test_with_all_disks_full_nothing_is_acknowledged_and_reads_go_on(site: Site) -> None:
    """1. Space runs short everywhere, then out.
    2. Writes fail with the reason; reads, lists and lookups are answered.
    3. There is space again: writes are taken, nothing acknowledged is missing.
    4. So it is after all have been killed and started again.
    """
    for disk in site.disks.values():
        disk.fill(leave_bytes=DISK_RESERVE_BYTES // 2)
    await in_trouble(site, site.disks)
    nearly_full = await site.refusal("nearly-full")
    for disk in site.disks.values():
        disk.fill()
    full = await site.refusal("full")
    await site.check_reads()

    for error in (nearly_full, full):
        assert not isinstance(error, Indefinite), "nothing was tried, and the answer says so"
        assert "takes no writes" in str(error)
        assert "it goes on by itself when there is space again" in str(error)

    for disk in site.disks.values():
        disk.free()
    await site.recover("after")
    for node_id in site.disks:
        await site.cluster.kill(node_id)
    for node_id in site.disks:
        await site.cluster.start_node(node_id)
    await site.cluster.wait_ready()
    await site.recover("restarted")
    await site.check_nothing_lost()
    assert tracebacks(site) == []


@pytest.mark.slow
async def test_disks_that_fill_up_under_writes_lose_nothing(site: Site) -> None:
    """1. All disks run full at once, in the middle of writing: some of it hangs half-way.
    2. Every node is killed and started again with its disk full.
    3. There is space again: the cluster comes back by itself, with all it acknowledged.
    """
    writing = asyncio.create_task(keep_writing(site))
    for disk in site.disks.values():
        disk.fill()
    await in_trouble(site, site.disks)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    for node_id in site.disks:
        await site.cluster.restart(node_id)
    await asyncio.sleep(1)

    for disk in site.disks.values():
        disk.free()
    await start_those_that_ended(site)
    await site.recover("after")
    await site.check_nothing_lost()
    assert tracebacks(site) == []


async def start_those_that_ended(site: Site) -> None:
    """Do what a supervisor does: a process that could not go on without space has ended.

    One that saw the full disk may end while it is looked at, so there is a second look.
    """
    for look in range(1, LOOKS_MAX + 1):
        for node_id in site.disks:
            if not site.cluster.is_running(node_id):
                await site.cluster.start_node(node_id)
        try:
            await site.cluster.wait_ready()
        except RefusesToStart:
            if look == LOOKS_MAX:
                raise
        else:
            return


async def keep_writing(site: Site) -> None:
    number = 0
    while True:
        try:
            await site.try_to_create(f"under-way-{number}", BATCH)
        except MetadataError:
            await asyncio.sleep(0.1)
        number += 1


async def test_a_single_replica_survives_a_full_disk(single: Site) -> None:
    (disk,) = single.disks.values()
    disk.fill(leave_bytes=DISK_RESERVE_BYTES - MIB)
    await in_trouble(single, single.disks)
    disk.fill()

    refused = await single.refusal("full")
    await single.check_reads()
    disk.free()
    await single.recover("after")
    await single.check_nothing_lost()

    assert "takes no writes" in str(refused)
    assert await leader_of(single) == "shard-node-1"
    assert tracebacks(single) == []
