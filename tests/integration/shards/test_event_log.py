"""A reader of the log while leaders are killed and the log is cut: each position, once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from nextgen.cli.local.plan import NodePlan, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.client.log.reader import ShardLogReader, log_readers, pin_log
from nextgen.kernel.errors import MetadataError, PositionAhead, PositionCompacted
from nextgen.tasks.groups import TaskGroup
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.shard_service_pb2 import PinLogResponse
from tests.support.callers.cluster_questions import NAMESPACE, client_of, prepare_namespace
from tests.support.callers.replica_questions import SHARD, leader_and_followers
from tests.support.processes.local_cluster import ClusterSize, LocalCluster

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=0, shards=1)
KILLS = 2
STEP_S = 60
PROPERTY_BYTES = 3_500
WRITERS = 8
READER = "keeper"
TTL_MS = 600_000

pytestmark = pytest.mark.timeout(240)


class QuickCutCluster(LocalCluster):
    """Its shard nodes cut their logs after a megabyte."""

    def command_of(self, node: NodePlan) -> list[str]:
        command = super().command_of(node)
        if node.kind == "shard-node":
            command[1:3] = ["-m", "tests.support.processes.quick_cut_node"]
        return command


@asynccontextmanager
async def quick_cut_cluster(data_dir: Path) -> AsyncIterator[LocalCluster]:
    plan = make_plan_on_free_ports(SIZE, cluster_id="test")
    async with QuickCutCluster(plan, data_dir) as cluster:
        await cluster.wait_ready()
        yield cluster


class Following:
    """What a reader has seen. Fails at once when a position is not the next one."""

    def __init__(self, cluster: LocalCluster, *, prefer_follower: bool) -> None:
        self.next_position = 1
        self._moved = asyncio.Event()
        self._reader = ShardLogReader(
            cluster.plan.discovery_endpoints, SHARD, prefer_follower=prefer_follower
        )

    async def run(self) -> None:
        async with aclosing(self._reader.pages(follow=True)) as pages:
            async for page in pages:
                for event in page.events:
                    assert event.position == self.next_position
                    self.next_position += 1
                self._moved.set()

    async def reach(self, position: int) -> None:
        async with timeout(STEP_S):
            while self.next_position <= position:
                self._moved.clear()
                await self._moved.wait()


class Writing:
    """Changes properties until it is stopped; ``position`` is the last acknowledged one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.position = 0
        self.is_over = False

    async def run(self) -> None:
        async with TaskGroup() as tasks:
            for number in range(WRITERS):
                tasks.create_task(self._write(f"persistent://{NAMESPACE}/t-{number}"))

    async def _write(self, topic: str) -> None:
        await self._client.create_topics([topic])
        count = 0
        while not self.is_over:
            count += 1
            note = f"{count:08d}" + "x" * PROPERTY_BYTES
            try:
                written = await self._client.set_topic_properties(topic, {"note": note})
            except MetadataError:
                continue  # Nobody leads at the moment; the client has waited.
            self.position = max(self.position, written.position)

    async def go_on(self, events: int) -> None:
        """Return when so many more were acknowledged."""
        wanted = self.position + events
        async with timeout(STEP_S):
            while self.position < wanted:
                await asyncio.sleep(0.05)


async def all_readers(cluster: LocalCluster) -> list[PinLogResponse]:
    """Return what every replica says of the log and its readers; a slow one is asked again."""
    async with timeout(STEP_S):
        while True:
            answers = await log_readers(cluster.plan.discovery_endpoints, SHARD)
            said = [each for each in answers.values() if not isinstance(each, MetadataError)]
            if len(said) == SIZE.shard_nodes:
                return said


async def oldest_positions(cluster: LocalCluster) -> list[int]:
    """Return where the replicas' logs begin, in order."""
    return sorted(answer.oldest_position for answer in await all_readers(cluster))


async def pin_everywhere(cluster: LocalCluster) -> None:
    """Pin the log from its first position on; repeat the request for a replica that missed it."""
    async with timeout(STEP_S):
        while True:
            await pin_log(cluster.plan.discovery_endpoints, SHARD, READER, 1, ttl_ms=TTL_MS)
            if all(
                [reader.reader_id for reader in each.readers] == [READER]
                for each in await all_readers(cluster)
            ):
                return


async def move_the_pin(nodes: Sequence[str], following: Sequence[Following]) -> None:
    """Keep what a reader still needs that has to go on elsewhere, and nothing before it."""
    position = min(each.next_position for each in following)
    await pin_log(nodes, SHARD, READER, position, ttl_ms=TTL_MS)


async def kill_the_leader(cluster: LocalCluster, writing: Writing) -> None:
    leader, _ = await leader_and_followers(cluster)
    await cluster.kill(leader)
    await writing.go_on(100)
    await cluster.start_node(leader)
    await cluster.wait_ready([leader])


async def freeze_the_leader(
    cluster: LocalCluster, writing: Writing, following: Sequence[Following]
) -> None:
    """Stop the leader's process: its streams stay open, and nothing comes from them."""
    leader, _ = await leader_and_followers(cluster)
    cluster.strike(leader, signal.SIGSTOP)
    try:
        await writing.go_on(100)
        for each in following:
            await each.reach(writing.position)
    finally:
        cluster.strike(leader, signal.SIGCONT)


@pytest.mark.slow
async def test_a_reader_sees_each_position_once_across_kills_and_cuts(tmp_path: Path) -> None:
    """
    1. A named reader pins position 1 everywhere; two readers follow, one at a follower.
    2. Leaders are killed and come back: nothing is cut, the pin survives their restarts.
    3. The named reader moves on: the log is cut behind it. The readers go on as if nothing had
       happened, and leave a leader that is killed, and one that is frozen.
    """
    async with quick_cut_cluster(tmp_path) as cluster, client_of(cluster) as client:
        await prepare_namespace(client)
        nodes = cluster.plan.discovery_endpoints
        await pin_everywhere(cluster)
        writing = Writing(client)
        following = [Following(cluster, prefer_follower=each) for each in (True, False)]
        async with TaskGroup() as tasks:
            readers = [tasks.create_task(each.run()) for each in following]
            writer = tasks.create_task(writing.run())
            await writing.go_on(600)
            for _ in range(KILLS):
                await kill_the_leader(cluster, writing)
            assert await oldest_positions(cluster) == [1, 1, 1]

            async with timeout(STEP_S):
                while min(await oldest_positions(cluster)) == 1:
                    await move_the_pin(nodes, following)
                    await writing.go_on(50)
            await kill_the_leader(cluster, writing)
            await freeze_the_leader(cluster, writing, following)
            writing.is_over = True
            await writer
            for each in following:
                await each.reach(writing.position)
            for reader in readers:
                reader.cancel()

        await pin_log(nodes, SHARD, READER, 0, ttl_ms=0)
        await check_the_ends(cluster, writing.position)


@asynccontextmanager
async def refused_as_cut(
    cluster: LocalCluster, last: int
) -> AsyncIterator[pytest.ExceptionInfo[PositionCompacted]]:
    """The body is refused, and told the oldest position that a replica has at that moment.

    A replica whose pin was let go may still be cutting: then it lies between two answers.
    """
    before = await oldest_positions(cluster)
    with pytest.raises(PositionCompacted) as compacted:
        yield compacted
    after = await oldest_positions(cluster)
    oldest = compacted.value.oldest
    assert 1 < oldest <= last
    assert any(low <= oldest <= high for low, high in zip(before, after, strict=True))


async def check_the_ends(cluster: LocalCluster, last: int) -> None:
    """Behind the cut and beyond the end are refused, with the numbers that help."""
    nodes = cluster.plan.discovery_endpoints
    async with refused_as_cut(cluster, last):
        await pin_log(nodes, SHARD, READER, 1, ttl_ms=TTL_MS)
    for prefer_follower in (True, False):
        reader = ShardLogReader(nodes, SHARD, prefer_follower=prefer_follower)
        async with refused_as_cut(cluster, last) as compacted:
            async for _ in reader.pages(1):
                pass
        assert compacted.value.snapshot_position >= compacted.value.oldest - 1
        with pytest.raises(PositionAhead) as ahead:
            async for _ in reader.pages(10 * last):
                pass
        assert (ahead.value.is_final, ahead.value.asked) == (True, 10 * last)
        assert ahead.value.last >= last
