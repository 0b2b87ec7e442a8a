"""Brokers as real processes that die or freeze: when their session ends, and how."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from nextgen.cli.local.cluster import LocalCluster
from nextgen.client.log.reader import read_events
from nextgen.kernel.limits.cluster import SESSION_RESUME_MS
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.events_pb2 import Event
from tests.support.callers.cluster_questions import client_of, prepare_namespace, wait_settled
from tests.support.processes.local_cluster import ClusterSize, running_cluster

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=2, shards=1)
WAIT_S = 60


async def next_end(cluster: LocalCluster, broker_id: str, since_ms: float) -> Event:
    """Return the event of the first end of a session of this broker, waiting for it.

    Ends before ``since_ms`` do not count: a slow start may have cost the broker a session.
    """
    async with timeout(WAIT_S):
        async for event in read_events(
            cluster.plan.discovery_endpoints, 1, follow=True, types=["broker_session_ended"]
        ):
            if event.broker_session_ended.broker_id == broker_id and event.time_ms >= since_ms:
                return event
    raise AssertionError("the stream of events ended")


async def test_a_killed_broker_loses_its_session_at_once_and_its_topics_go_on_elsewhere(
    tmp_path: Path, capsys: Any
) -> None:
    async with running_cluster(tmp_path, SIZE) as cluster, client_of(cluster) as client:
        await prepare_namespace(client)
        names = [f"persistent://acme/orders/t-{number}" for number in range(20)]
        await client.create_topics(names)
        before = await client.lookup(names)
        victim = before[0].broker_id

        killed_at_ms = time.time() * 1000
        cluster.strike(victim)
        event = await next_end(cluster, victim, killed_at_ms)
        # The end is known here before discovery was told of it.
        async with timeout(WAIT_S):
            after = await client.lookup(names)
            while victim in {one.broker_id for one in after}:
                await asyncio.sleep(0.05)
                after = await client.lookup(names)

    ended_ms = event.time_ms - killed_at_ms
    with capsys.disabled():
        print(json.dumps({"session_ended_after_ms": round(ended_ms)}))
    # Not "expired": nobody waited for the three seconds that silence takes.
    assert event.broker_session_ended.reason == "disconnected"
    for old, new in zip(before, after, strict=True):
        assert new.epoch == old.epoch + (old.broker_id == victim)


async def test_a_frozen_broker_keeps_its_session_for_the_time_of_silence(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, SIZE) as cluster:
        frozen_at_ms = time.time() * 1000
        cluster.strike("broker-1", signal.SIGSTOP)
        try:
            event = await next_end(cluster, "broker-1", frozen_at_ms)
        finally:
            cluster.strike("broker-1", signal.SIGCONT)
        await cluster.wait_ready(["broker-1"])

    assert event.broker_session_ended.reason == "expired"
    # Three seconds from the last heartbeat, which came up to 750 ms before it froze, or earlier
    # on a slow machine. A broker whose stream breaks has this long:
    assert event.time_ms - frozen_at_ms > SESSION_RESUME_MS


@pytest.mark.slow
async def test_a_leader_that_stops_in_order_ends_no_session(tmp_path: Path) -> None:
    size = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=2, shards=1)
    async with running_cluster(tmp_path, size) as cluster, client_of(cluster) as client:
        await wait_settled(client)  # A leadership that is being moved is another matter.
        leader = (await client.cluster()).shards[0].leader_node
        stopped_at_ms = time.time() * 1000
        await cluster.kill(leader, signal.SIGTERM)
        await cluster.start_node(leader)
        await cluster.wait_ready()

        ended = [
            event
            async for event in read_events(
                cluster.plan.discovery_endpoints, 1, types=["broker_session_ended"]
            )
            if event.time_ms >= stopped_at_ms
        ]

    assert ended == []
