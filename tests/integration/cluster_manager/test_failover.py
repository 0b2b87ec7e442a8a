"""Three replicas as processes: joining, pushing, killing and stopping the leader."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from statistics import median

import grpc.aio
import pytest

from nextgen.client.cluster.link import ClusterLink
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import cluster_service_pb2_grpc as cluster_grpc
from protos.nextgen.v1 import events_pb2 as events_pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1 import shard_service_pb2_grpc as shard_grpc
from tests.integration.cluster_manager.managers import (
    ANSWER_S_MAX,
    Managers,
    link_of,
    ready,
    report,
)
from tests.support.callers.member_channel import member_channel

PUSH_MS_MAX = 200.0
REJOIN_MS_MAX = 60_000
RESTARTS_MAX = 3


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managers]:
    started = Managers(tmp_path_factory.mktemp("managers"))
    yield started
    for node_id in tuple(started.processes):
        started.kill(node_id)


@pytest.fixture
async def managers(shared: Managers) -> Managers:
    """Return three replicas that run, one of them as leader. What they know, they keep."""
    for node_id in shared.node_ids:
        if node_id not in shared.processes:
            shared.start(node_id)
    for node_id in shared.node_ids:
        assert (await shared.status(node_id)).group_id == 0
    await shared.wait_leader()
    return shared


async def _report_leader(link: ClusterLink, term: int, watcher: ClusterLink) -> None:
    leader = cluster_pb.LeaderReport(
        shard_id=1, term=term, node_id="shard-node-1", grpc="127.0.0.1:1"
    )
    message = cluster_pb.NodeMessage(leader=leader)
    await report(link, message, watcher, lambda view: view.leader_term(1) >= term)


async def _report_broker(broker_id: str, link: ClusterLink, watcher: ClusterLink) -> None:
    broker = events_pb.BrokerRecorded(
        broker_id=broker_id, session_id="s-1", epoch=1, is_live=True, capacity_units=10
    )
    message = cluster_pb.NodeMessage(broker=cluster_pb.BrokerReport(broker=broker))
    await report(link, message, watcher, lambda view: broker_id in view.brokers)


def _brokers_of(update: cluster_pb.ClusterUpdate) -> dict[str, events_pb.BrokerRecorded]:
    return {broker.broker_id: broker for broker in update.brokers}


async def _rejoined(managers: Managers, link: ClusterLink, gone: str) -> str:
    """Wait until the link stands at another replica and return that one."""
    elsewhere = {None, f"127.0.0.1:{managers.grpc[gone]}"}
    assert await link.wait_until(lambda _: link.leader_endpoint not in elsewhere, REJOIN_MS_MAX)
    return managers.node_at(link.leader_endpoint)


async def _comes_back(managers: Managers, gone: str, leader: str) -> None:
    """Start a replica again: it deposes nobody.

    A leader that stands still meanwhile is deposed by its peers, and rightly: then the next one is
    looked at.
    """
    for _ in range(RESTARTS_MAX):
        managers.start(gone)
        status = await managers.status(gone)
        assert status.group_id == 0
        if (await managers.status(leader)).role == "leader":
            return
        managers.kill(gone)
        leader = await managers.wait_leader()
    raise AssertionError(f"with {gone} the leader changed each of {RESTARTS_MAX} times")


async def _events(managers: Managers, node_id: str) -> list[str]:
    async with member_channel(f"127.0.0.1:{managers.grpc[node_id]}") as channel:
        stub = shard_grpc.ShardServiceStub(channel)
        batches = stub.ReadEvents(shard_pb.ReadEventsRequest(shard_id=0), timeout=ANSWER_S_MAX)
        return [
            str(event.WhichOneof("payload")) async for batch in batches for event in batch.events
        ]


async def test_a_killed_leader_is_replaced_by_one_that_knows_the_same(managers: Managers) -> None:
    link = link_of(managers, "shard-node-1")
    watcher = link_of(managers, "discovery-1", "discovery")
    await link.start()
    await watcher.start()
    try:
        await ready(link)
        await ready(watcher)
        shard_map = link.view.to_update().shard_map
        await _report_broker("broker-killed", link, watcher)
        leader = managers.node_at(link.leader_endpoint)

        managers.kill(leader)
        killed_at = time.monotonic()
        successor = await _rejoined(managers, link, leader)
        took_ms = (time.monotonic() - killed_at) * 1_000

        # A view that knows nothing yet shows what the successor itself pushes.
        fresh = link_of(managers, "discovery-2", "discovery")
        await fresh.start()
        await ready(fresh)
        pushed = fresh.view.to_update()
        await fresh.stop()
        assert pushed.shard_map == shard_map
        assert _brokers_of(pushed)["broker-killed"].session_id == "s-1"
        print(f"{leader} -> {successor}: rejoined after {took_ms:.0f} ms")

        await _comes_back(managers, leader, successor)
    finally:
        await link.stop()
        await watcher.stop()


async def test_a_shard_leader_is_known_everywhere_within_200_ms(managers: Managers) -> None:
    link = link_of(managers, "shard-node-1")
    watchers = [link_of(managers, f"discovery-{n}", "discovery") for n in range(5)]
    try:
        for each in (link, *watchers):
            await each.start()
        for each in (link, *watchers):
            await ready(each)

        delays_ms = []
        for term in range(1, 21):
            sent_at = time.monotonic()
            await asyncio.gather(*(_report_leader(link, term, each) for each in watchers))
            delays_ms.append((time.monotonic() - sent_at) * 1_000)

        print(f"pushed within {median(delays_ms):.1f} / {max(delays_ms):.1f} ms")
        # Of most: single ones are late when the machine does something else meanwhile. What
        # came with heartbeats instead of at once would take half a second at the median.
        assert median(delays_ms) < PUSH_MS_MAX
    finally:
        for each in (link, *watchers):
            await each.stop()


async def test_a_leader_that_is_stopped_hands_over_first_and_exits_clean(
    managers: Managers,
) -> None:
    link = link_of(managers, "shard-node-1")
    await link.start()
    try:
        await ready(link)
        leader = managers.node_at(link.leader_endpoint)
        term = (await managers.status(leader)).term

        stopping = asyncio.to_thread(managers.terminate, leader)
        stopped_at = time.monotonic()
        code, successor = await asyncio.gather(stopping, _rejoined(managers, link, leader))
        took_ms = (time.monotonic() - stopped_at) * 1_000

        print(f"{leader} -> {successor}: stopped and rejoined in {took_ms:.0f} ms")
        assert code == 0
        assert (await managers.status(successor)).term > term
    finally:
        await link.stop()


async def test_every_replica_reads_out_the_log_of_group_0(managers: Managers) -> None:
    link = link_of(managers, "shard-node-1")
    await link.start()
    try:
        await ready(link)
        leader = managers.node_at(link.leader_endpoint)
        position = (await managers.status(leader)).commit_position
        logs = []
        for node_id in managers.node_ids:
            await managers.wait_applied(node_id, position)
            logs.append(await _events(managers, node_id))
        known = min(len(log) for log in logs)
        assert [log[:known] for log in logs] == [logs[0][:known]] * len(logs)
        assert logs[0][0] == "node_registered"
        assert "shard_map_changed" in logs[0]
    finally:
        await link.stop()


async def test_state_survives_the_restart_of_every_replica(managers: Managers) -> None:
    link = link_of(managers, "shard-node-1")
    await link.start()
    await ready(link)
    await _report_broker("broker-restarted", link, link)
    before = link.view.to_update()
    await link.stop()

    for node_id in managers.node_ids:
        managers.kill(node_id)
    for node_id in managers.node_ids:
        managers.start(node_id)

    again = link_of(managers, "discovery-1", "discovery")
    await again.start()
    try:
        await ready(again)
        after = again.view.to_update()
        assert after.shard_map == before.shard_map
        assert "broker-restarted" in _brokers_of(before)
        assert _brokers_of(after) == _brokers_of(before)
    finally:
        await again.stop()


async def test_a_frozen_leader_that_wakes_tells_nothing_that_is_out_of_date(
    managers: Managers,
) -> None:
    """1. The leader freezes. 2. Its successor records a broker. 3. The frozen one is asked for the
    cluster's state, over a connection from before. 4. It wakes and answers."""
    link = link_of(managers, "shard-node-1")
    await link.start()
    try:
        await ready(link)
        leader = managers.node_at(link.leader_endpoint)
        async with member_channel(f"127.0.0.1:{managers.grpc[leader]}") as channel:
            stub = cluster_grpc.ClusterServiceStub(channel)
            await stub.GetClusterState(cluster_pb.GetClusterStateRequest(), timeout=ANSWER_S_MAX)
            managers.processes[leader].send_signal(signal.SIGSTOP)
            await _rejoined(managers, link, leader)
            await _report_broker("broker-frozen", link, link)

            asked = [
                asyncio.ensure_future(
                    stub.GetClusterState(cluster_pb.GetClusterStateRequest(), timeout=30)
                )
                for _ in range(20)
            ]
            await asyncio.sleep(0.2)  # Until they have left this process.
            managers.processes[leader].send_signal(signal.SIGCONT)
            answers = await asyncio.gather(*asked, return_exceptions=True)

        states = [each for each in answers if isinstance(each, cluster_pb.ClusterUpdate)]
        current = ["broker-frozen" in _brokers_of(state) for state in states]
        assert all(current), "an answer from before the freeze"
        assert all(isinstance(each, grpc.RpcError) for each in answers if each not in states)
    finally:
        await link.stop()
