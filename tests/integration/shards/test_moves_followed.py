"""Slots move in a real cluster while clients list, watch, create batches and set policies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.shards.slot_plans import follow, plan_slots
from nextgen.client import Client
from nextgen.client.watch_model import WatchedObjects
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.tasks.background import cancel_and_wait, start
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import PlanSlotsRequest
from protos.nextgen.v1.discovery_service_pb2 import (
    ListObjectsRequest,
    ListObjectsResponse,
)
from protos.nextgen.v1.events_pb2 import SlotRange
from tests.support.processes.local_cluster import ClusterSize, running_cluster

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=1, shards=2)
NAMESPACE = "steady/followed"
MOVED_MS_MAX = 60_000
TOPICS = 120
BATCH = 10
WAIT_S = 60


class Followers:
    """Clients that go on for ever; ``failures`` is what any of them saw that it should not."""

    def __init__(self, client: Client, effective: Client, discovery: DiscoveryClient) -> None:
        self._client = client
        self._effective = effective
        self._discovery = discovery
        self.failures: list[str] = []
        self.rounds = {"list": 0, "count": 0, "batch": 0, "policy": 0}
        self.created: list[str] = []
        self.watched: WatchedObjects = WatchedObjects()

    async def progress(self) -> None:
        """Return once each has done something that began after this call."""
        before = dict(self.rounds)
        async with timeout(WAIT_S):
            while any(self.rounds[kind] < count + 2 for kind, count in before.items()):
                await asyncio.sleep(0.02)

    async def follow(self) -> None:
        async for change in self._client.watch_topics(prefix=f"persistent://{NAMESPACE}/"):
            self.watched.apply(change)

    async def list_all(self) -> None:
        before = set(self.created)
        names: list[str] = []
        request = ListObjectsRequest(parent=NAMESPACE, page_size=17, names_only=True)
        while True:
            page: ListObjectsResponse = await self._discovery.call("ListTopics", request)
            names += [item.name for item in page.items]
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
        if len(names) != len(set(names)):
            self.failures.append("a name was listed twice")
        if missing := before - set(names):
            self.failures.append(f"{len(missing)} names were not listed, one is {min(missing)}")

    async def count(self) -> None:
        before = len(self.created)
        counted = (await self._client.count_topics(NAMESPACE)).topics
        if not before <= counted <= len(self.created) + BATCH:
            self.failures.append(f"{counted} topics were counted, {before} were there")

    async def batch(self) -> None:
        first = len(self.created)
        names = [f"persistent://{NAMESPACE}/t-{first + each:05}" for each in range(BATCH)]
        for made in await self._client.create_topics(names):
            if made.rejection_code:
                self.failures.append(f"{made.name} was refused: {made.message}")
        self.created += names

    async def policy(self) -> None:
        properties = {"round": str(self.rounds["policy"])}
        await self._effective.set_namespace_properties(NAMESPACE, properties)

    async def repeat(self, kind: str, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await act()
            except Exception as error:
                self.failures.append(f"{kind}: {error!r}")
            self.rounds[kind] += 1
            await asyncio.sleep(0.01)


@asynccontextmanager
async def followed(cluster: LocalCluster) -> AsyncIterator[Followers]:
    nodes = list(cluster.plan.discovery_endpoints)
    async with (
        Client(nodes) as client,
        Client(nodes, effective=True) as effective,
        DiscoveryClient(nodes) as discovery,
    ):
        followers = Followers(client, effective, discovery)
        await client.create_tenant("steady")
        await client.create_namespace(NAMESPACE)
        while len(followers.created) < TOPICS:
            await followers.batch()
        tasks = {
            start("watch", followers.follow()),
            start("list", followers.repeat("list", followers.list_all)),
            start("count", followers.repeat("count", followers.count)),
            start("batch", followers.repeat("batch", followers.batch)),
            start("policy", followers.repeat("policy", followers.policy)),
        }
        try:
            yield followers
        finally:
            await cancel_and_wait(*tasks)


async def move_half(cluster: LocalCluster, target: int) -> None:
    endpoints = list(cluster.plan.discovery_endpoints)
    ranges = [SlotRange(first=0, last=SLOT_COUNT // 2 - 1)]
    request = PlanSlotsRequest(kind="move_slots", into_shard=target, ranges=ranges)
    plan = await plan_slots(endpoints, request)
    done = await follow(endpoints, plan.plan.plan_id, MOVED_MS_MAX, lambda _plan: None)
    assert (done.plan.phase, done.slots_left) == ("done", 0)


@pytest.mark.slow
async def test_nobody_who_follows_notices_that_slots_move(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, SIZE) as cluster, followed(cluster) as followers:
        await followers.progress()
        for target in (2, 1):
            await move_half(cluster, target)
            await followers.progress()

        assert followers.failures == []
        async with timeout(WAIT_S):
            while not set(followers.created) <= set(followers.watched):
                await asyncio.sleep(0.1)
        assert set(followers.watched) <= {*followers.created, *_next(followers)}


def _next(followers: Followers) -> list[str]:
    """Return the names of the batch that may be under way."""
    first = len(followers.created)
    return [f"persistent://{NAMESPACE}/t-{first + each:05}" for each in range(BATCH)]
