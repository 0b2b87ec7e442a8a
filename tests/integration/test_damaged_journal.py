"""A damaged journal: what a leader can mend is mended, the rest is refused and then rebuilt."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize
from nextgen.client import Client, NewTopic
from nextgen.kernel.limits.cluster import JOURNAL_SEGMENT_BYTES, PROPERTY_VALUE_BYTES_MAX
from tests.support.callers.cluster_questions import NAMESPACE, client_of, prepare_namespace
from tests.support.callers.replica_questions import SHARD, leader_and_followers, wait_caught_up
from tests.support.processes.local_cluster import running_cluster
from tests.support.processes.refusals import LOCK, start_refused, tree

THREE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=1, shards=1)
BATCH = 100
LARGE = {str(number): "x" * (PROPERTY_VALUE_BYTES_MAX - 8) for number in range(4)}
"""Properties of some 16 KiB, so that few topics fill a journal file."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with running_cluster(tmp_path, THREE) as cluster:
        yield cluster


async def create_large(client: Client, prefix: str, count: int) -> set[str]:
    """Create topics and return the names that were acknowledged."""
    names = [f"persistent://{NAMESPACE}/{prefix}-{number}" for number in range(count)]
    for start in range(0, count, BATCH):
        batch = [NewTopic(name, properties=LARGE) for name in names[start : start + BATCH]]
        for created in await client.create_topics(batch):
            assert created.is_created, created
    return set(names)


async def all_topics(client: Client) -> set[str]:
    return {topic.name async for topic in client.list_topics(NAMESPACE)}


def journal_of(cluster: LocalCluster, node_id: str) -> Path:
    return cluster.data_dir / node_id / f"group-{SHARD}" / "journal"


def flip(path: Path, offset: int, length: int = 64) -> None:
    """Turn some bytes of a file over."""
    with path.open("r+b") as file:
        file.seek(offset)
        data = file.read(length)
        file.seek(offset)
        file.write(bytes(byte ^ 0xFF for byte in data))


@pytest.mark.slow
async def test_damage_that_no_leader_can_mend_is_refused_and_the_replica_rebuilt(
    cluster: LocalCluster,
) -> None:
    """1. A follower's journal fills its first file and goes on in the next.
    2. The follower is killed and a byte in the middle of the first file turned.
    3. It refuses, names the directory and what to do, and touches nothing.
    4. The directory is moved away as told: the replica is rebuilt, votes not before that.
    5. Another node dies: with the rebuilt one there is a majority, and nothing is missing.
    """
    async with client_of(cluster, timeout_ms=30_000) as client:
        await prepare_namespace(client)
        acknowledged = await create_large(client, "before", 1_200)
        leader, (follower, other) = await leader_and_followers(cluster)
        await wait_caught_up(cluster, follower, leader)  # Two of three acknowledge.
        journal = journal_of(cluster, follower)
        files = sorted(journal.glob("*.journal"))
        assert len(files) > 1, "one file would be a tail, which is mended"
        await cluster.kill(follower)
        flip(files[0], JOURNAL_SEGMENT_BYTES // 2)
        before = tree(cluster.data_dir / follower, without=LOCK)

        said = start_refused(cluster.plan, follower, cluster.data_dir)

        assert f"the journal in {journal} is corrupted" in said
        assert f"stop this node, move {journal} away and start it again" in said
        assert tree(cluster.data_dir / follower, without=LOCK) == before

        shutil.move(journal, cluster.data_dir / "moved-away")
        acknowledged |= await create_large(client, "meanwhile", BATCH)
        await cluster.start_node(follower)
        await cluster.wait_ready([follower])
        await wait_caught_up(cluster, follower, leader)
        await cluster.kill(other)
        acknowledged |= await create_large(client, "after", BATCH)

        assert await all_topics(client) == acknowledged
    log = cluster.log_path(follower).read_text()
    assert "this replica lost a part of its log" in log


async def test_damage_at_the_end_is_mended_from_the_leader(cluster: LocalCluster) -> None:
    """The replica cannot know what it had acknowledged, so it does not vote before that."""
    async with client_of(cluster, timeout_ms=30_000) as client:
        await prepare_namespace(client)
        acknowledged = await create_large(client, "before", BATCH)
        leader, (follower, other) = await leader_and_followers(cluster)
        await wait_caught_up(cluster, follower, leader)  # Two of three acknowledge.
        (file,) = sorted(journal_of(cluster, follower).glob("*.journal"))
        await cluster.kill(follower)
        flip(file, BATCH * 16 * 1024 // 2)

        await cluster.start_node(follower)
        await cluster.wait_ready([follower])
        await wait_caught_up(cluster, follower, leader)
        await cluster.kill(other)
        acknowledged |= await create_large(client, "after", BATCH)

        assert await all_topics(client) == acknowledged
    log = cluster.log_path(follower).read_text()
    assert "this replica lost a part of its log" in log
