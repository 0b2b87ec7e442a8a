"""Shard nodes as real processes: what clients and brokers see while processes come and go."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from nextgen.kernel.limits.cluster import SHUTDOWN_MS_MAX
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from tests.integration.shards.processes import (
    READY_S_MAX,
    TIMEOUT_MS,
    Caller,
    running,
    serves,
)
from tests.support.processes.fork_server import start_warm

BUSY_MACHINE_S = 15
"""Slack: six processes, a busy machine. Whoever waits until a request is given up waits far longer,
``TIMEOUT_MS``."""


@pytest.mark.slow
async def test_a_killed_leader_costs_no_acknowledged_topic_and_no_wrong_answer(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (nodes, caller):
        topics = await caller.create(*(f"t-{number}" for number in range(50)))
        before = {topic: await caller.lookup(topic) for topic in topics}

        for round_number in range(3):
            victim = _busiest(caller)
            nodes.kill(victim)
            topics += await caller.create(f"after-{round_number}")
            answers = [await caller.lookup(topic) for topic in topics]
            for answer in answers:
                serving = await serves(answer)
                assert (serving.serves, serving.epoch) == (True, answer.epoch)
            nodes.start(victim)
            await nodes.wait_ready(victim)

        after = {topic: await caller.lookup(topic) for topic in before}
        moved = [topic for topic in before if after[topic].epoch != before[topic].epoch]
        assert not moved, "a change of leader reassigns nothing"


async def test_sigterm_hands_leadership_over_and_ends_in_time(tmp_path: Path) -> None:
    async with running(tmp_path) as (nodes, caller):
        topics = await caller.create(*(f"t-{number}" for number in range(20)))
        victim = _busiest(caller)
        stop = asyncio.Event()
        gaps: list[float] = []
        looking = asyncio.create_task(_keep_looking(caller, topics, stop, gaps))

        started = time.monotonic()
        code = await asyncio.to_thread(nodes.terminate, victim)
        took_s = time.monotonic() - started
        await asyncio.sleep(1.0)
        stop.set()
        await looking

        assert code == 0
        assert took_s < SHUTDOWN_MS_MAX / 1000 + BUSY_MACHINE_S
        assert max(gaps) < BUSY_MACHINE_S


@pytest.mark.slow
async def test_a_killed_brokers_topics_move_to_the_other_one(tmp_path: Path) -> None:
    async with running(tmp_path) as (nodes, caller):
        before: dict[str, LookupAnswer] = {}
        async with timeout(READY_S_MAX):
            # Until the first broker's capacity has been leased, it gets none.
            while all(answer.broker_id != "broker-1" for answer in before.values()):
                names = (f"t-{len(before) + number}" for number in range(20))
                for topic in await caller.create(*names):
                    before[topic] = await caller.lookup(topic)
        on_first = [topic for topic in before if before[topic].broker_id == "broker-1"]

        nodes.kill("broker-1")
        async with timeout(READY_S_MAX):
            for topic in on_first:
                # A controller hears of the death a little later than the broker's manager.
                while (answer := await caller.lookup(topic)).broker_id == "broker-1":
                    await asyncio.sleep(0.05)
                assert (answer.broker_id, answer.epoch) == ("broker-2", before[topic].epoch + 1)
                assert (await serves(answer)).serves


async def test_a_restarted_node_opens_its_shards_without_a_cluster_manager(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, shard_nodes=1, brokers=1, shards=2) as (nodes, caller):
        (topic,) = await caller.create("kept")
        await caller.lookup(topic)
        node = nodes.shard_nodes[0]
        assert nodes.terminate(node) == 0

        # Port 1 answers nobody: the node has to go by what it remembers.
        arguments = nodes.arguments(node, cluster_managers="127.0.0.1:1")
        nodes.processes[node] = start_warm("shards", arguments, environment=os.environ)
        await nodes.wait_ready(node)

        request = pb.GetRequest(names=[pb.ObjectName(kind=3, name=topic)])
        response = await caller.pool.request(
            nodes.endpoint(node),
            pb.ShardRequest(shard_id=caller.shard_of(topic), get=request),
            timeout_ms=TIMEOUT_MS,
        )
        assert response.get.items[0].topic.name == topic


def _busiest(caller: Caller) -> str:
    led: dict[str, int] = {}
    for leader in caller.link.view.leaders.values():
        led[leader.node_id] = led.get(leader.node_id, 0) + 1
    return max(led, key=lambda node: led[node])


async def _keep_looking(
    caller: Caller, topics: list[str], stop: asyncio.Event, gaps: list[float]
) -> None:
    while not stop.is_set():
        for topic in topics:
            started = time.monotonic()
            answer = await caller.lookup(topic)
            gaps.append(time.monotonic() - started)
            assert answer.broker_id, answer
