"""A topic grows under load and shrinks when it is quiet, in real processes; nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from nextgen.cli.local.plan import make_plan_on_free_ports
from nextgen.client import st
from nextgen.client.st.errors import TimedOut
from nextgen.runtime.security.cluster_proof import environment_of_child
from nextgen.tasks.timeouts import timeout
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import ClusterSize, LocalCluster
from tests.support.scalable_client.checks import KEYS, expected

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SIZE = ClusterSize(1, 1, 1, brokers=2, shards=2)
TOPIC = "topic://public/default/hot"
SETTINGS = {
    "scalableTopicLoadReportIntervalSeconds": "0.5",
    "scalableTopicSplitMsgRateInThreshold": "100",
    "scalableTopicMergeMsgRateInThreshold": "20",
    "scalableTopicSplitVsRebucketMinMsgRateInThreshold": "50",
    "scalableTopicSplitCooldownSeconds": "1",
    "scalableTopicMergeCooldownSeconds": "1",
    "scalableTopicMergeWindowSeconds": "2",
    "scalableTopicMaxSegments": "8",
}
"""Of the whole cluster, set while it runs: without them neither a split nor a merge would begin."""

POLICY = {"maxSegments": 4}
"""Of the topic."""

WAIT_S_MAX = 60
"""Only a failing test waits that long."""


class Operator:
    """Reads layouts, sets policies and kills nodes."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        (self._node,) = cluster.plan.of_kind("discovery")

    def client(self) -> st.PulsarClient:
        return st.PulsarClient(self.cluster.plan.service_url)

    async def set_policy(self, policy: dict[str, Any]) -> None:
        url = f"http://{self._node.http}/admin/v2/scalable/public/default/hot/autoScalePolicy"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=policy) as answer,
        ):
            assert answer.status == 204, await answer.text()

    async def shown(self, *arguments: str) -> Any:
        ended = await asyncio.to_thread(
            run_warm,
            "nextgen",
            [*arguments, "--json", "--target", self._node.grpc],
            environment=environment_of_child(os.environ),
            timeout_s=WAIT_S_MAX,
        )
        assert ended.returncode == 0, ended.stderr
        return [json.loads(line) for line in ended.stdout.splitlines()]

    async def active(self) -> int:
        (layout,) = await self.shown("scalable-topics", "get", TOPIC)
        return sum(not each["is_sealed"] for each in layout["segments"])

    async def wait_active(self, least: int, most: int) -> None:
        async with timeout(WAIT_S_MAX):
            while not least <= await self.active() <= most:
                await asyncio.sleep(0.2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    plan = make_plan_on_free_ports(SIZE, cluster_id="test")
    async with LocalCluster(plan, directory) as cluster:
        await cluster.wait_ready()
        made = Operator(cluster)
        pairs = [f"{name}={value}" for name, value in SETTINGS.items()]
        await made.shown("brokers", "settings", "set", *pairs)
        await made.shown("scalable-topics", "create", TOPIC)
        yield made


class Load:
    """Publishes rising numbers with keys until it is stopped, and consumes them."""

    def __init__(self) -> None:
        self.sent = 0
        self.found: dict[str | None, list[int]] = {}
        self.is_over = asyncio.Event()

    async def send(self, producer: st.Producer[bytes]) -> None:
        while not self.is_over.is_set():
            futures = []
            for _ in range(10):
                number, self.sent = self.sent, self.sent + 1
                futures.append(await producer.submit(b"%d" % number, key=f"k{number % KEYS}"))
            await asyncio.gather(*futures)
            await asyncio.sleep(0.02)

    async def take(self, consumer: st.StreamConsumer[bytes]) -> None:
        while not (self.is_over.is_set() and self.taken == self.sent):
            try:
                message = await consumer.receive(500)
            except TimedOut:
                continue
            self.found.setdefault(message.key, []).append(int(message.data))
            await consumer.acknowledge_cumulative(message)

    @property
    def taken(self) -> int:
        return sum(map(len, self.found.values()))


async def test_a_hot_topic_is_split_and_a_quiet_one_merged_and_nothing_is_lost(
    operator: Operator,
) -> None:
    await operator.set_policy(POLICY)
    load = Load()
    async with operator.client() as client:
        consumer = await client.stream_consumer(
            TOPIC, "s", initial_position=st.InitialPosition.EARLIEST
        )
        producer = await client.create_producer(TOPIC)
        taking = asyncio.create_task(load.take(consumer))
        sending = asyncio.create_task(load.send(producer))

        await operator.wait_active(2, 4)
        load.is_over.set()
        await sending
        async with timeout(WAIT_S_MAX):
            await taking
        assert load.found == expected(0, load.sent)

        # When: it is quiet. Then: it is one segment again, and its clients go on.
        await operator.wait_active(1, 1)
        await producer.send(b"last", key="k0")
        last = await consumer.receive(30_000)
        assert last.data == b"last"

    (why,) = await operator.shown("scalable-topics", "why", TOPIC, "--last", "0")
    first, *_, final = why["actions"]
    assert (first["kind"], first["reason"], first["outcome"]) == ("split", "msgRateIn", "committed")
    assert first["rates"]["0"]["messages_in"] > 100
    assert first["policy"]["maxSegments"] == POLICY["maxSegments"]
    assert first["policy"]["mergeWindowSeconds"] == 2
    assert (final["kind"], final["reason"]) == ("merge", "cold")
