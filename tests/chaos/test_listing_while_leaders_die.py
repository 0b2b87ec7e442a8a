"""A big namespace is walked, by pages and as one stream, while the leaders of shards are killed.

``benchmarks/inventory/topic_listing.py`` does the same with a million topics, and measures memory.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import cycle

import aiohttp
import pytest

from nextgen.cli.local.plan import ClusterSize
from nextgen.client import Client
from tests.support.callers.cluster_questions import (
    NAMESPACE,
    busiest_shard_leader,
    client_of,
    prepare_namespace,
)
from tests.support.processes.local_cluster import LocalCluster, running_cluster

TOPICS = 20_000
TOPICS_PER_CREATE = 500
NAMES = [f"persistent://{NAMESPACE}/{number:05}-{'x' * 990}" for number in range(TOPICS)]
"""20 MB: more than the sockets between discovery and a client hold, so that a stream is under way
for as long as its client wants."""

PAGES_PER_KILL = 4
BYTES_PER_KILL = 4 * 1024 * 1024

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
async def cluster(tmp_path) -> AsyncIterator[LocalCluster]:
    async with running_cluster(tmp_path, ClusterSize(brokers=1)) as cluster:
        async with client_of(cluster, timeout_ms=60_000) as client:
            await prepare_namespace(client)
            for begin in range(0, TOPICS, TOPICS_PER_CREATE):
                made = await client.create_topics(NAMES[begin : begin + TOPICS_PER_CREATE])
                assert all(topic.is_created for topic in made)
        yield cluster


class Kills:
    """Kills one node at a time: the one of before is started again first."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._away: str | None = None
        self.nodes: list[str] = []

    async def kill(self, node_id: str) -> None:
        await self.restore()
        await self._cluster.kill(node_id)
        self._away = node_id
        self.nodes.append(node_id)

    async def restore(self) -> None:
        if self._away is not None:
            await self._cluster.start_node(self._away)
            await self._cluster.wait_ready([self._away])
            self._away = None


async def test_pages_have_each_name_once_while_leaders_and_discovery_nodes_are_killed(cluster):
    kills = Kills(cluster)
    discovery = cycle(node.node_id for node in cluster.plan.of_kind("discovery"))
    names: list[str] = []
    pages, token = 0, ""
    async with client_of(cluster, timeout_ms=60_000) as client:
        while pages == 0 or token:
            page = await client.topic_names_page(NAMESPACE, page_token=token)
            names += page.partitions
            pages, token = pages + 1, page.next_page_token
            if pages % PAGES_PER_KILL == 0:
                is_leaders_turn = pages % (2 * PAGES_PER_KILL)
                await kills.kill(
                    await busiest_shard_leader(client) if is_leaders_turn else next(discovery)
                )

    assert len(kills.nodes) >= TOPICS // 1_000 // PAGES_PER_KILL
    assert names == NAMES


async def test_a_stream_has_each_name_once_while_leaders_are_killed(cluster):
    kills = Kills(cluster)
    async with client_of(cluster, timeout_ms=60_000) as client:
        body = await read_between_kills(cluster, client, kills)

    assert len(kills.nodes) >= 3
    assert json.loads(body) == NAMES


async def read_between_kills(cluster: LocalCluster, client: Client, kills: Kills) -> bytes:
    """Return the listing over HTTP, read no further than ``BYTES_PER_KILL`` between two kills."""
    url = f"http://{cluster.plan.of_kind('discovery')[0].http}"
    body = bytearray()
    wanted = BYTES_PER_KILL
    async with (
        aiohttp.ClientSession(read_bufsize=64 * 1024) as session,
        session.get(f"{url}/admin/v2/namespaces/{NAMESPACE}/topics") as answer,
    ):
        assert answer.status == 200
        async for piece in answer.content.iter_any():
            body += piece
            if len(body) >= wanted:
                wanted += BYTES_PER_KILL
                await kills.kill(await busiest_shard_leader(client))
    return bytes(body)
