"""The cluster manager's leader is killed again and again under load; nothing acked is lost.

1. Broker sessions are reported one after the other; one counts as acked when it was pushed to
   another node, which happens only after its commit.
2. Two shards keep asking for capacity; an answer is an ack of what it says.
3. Meanwhile SIGKILL hits the leader, or now and then a follower, and the process starts again.
4. At the end every replica's log says the same, holds what was acked, and at no event was more
   leased than granted or more granted than there is.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cluster_manager import wire
from cluster_manager.domain.cluster import INITIAL, ClusterState, evolve
from nextgen.client.cluster.link import ClusterLink
from nextgen.kernel.errors import MetadataError
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import events_pb2 as events_pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1 import shard_service_pb2_grpc as shard_grpc
from tests.integration.cluster_manager.managers import READY_S_MAX, Managers, link_of, ready
from tests.support.callers.member_channel import member_channel
from tests.support.discovery.fake_shard_server import FakeShardServer

KILLS = 20
BETWEEN_KILLS_S = 1.0
BROKERS = 5
CAPACITY_UNITS = 1_000
REPORT_AGAIN_MS = 100
RECOVERED_S_MAX = 60.0
"""After the last kill acks go on within this: processes start slowly on a busy machine."""


@dataclass
class Acked:
    """The answers that clients got and may rely on from then on."""

    sessions: dict[str, int] = field(default_factory=dict)
    """By broker id: the epoch of the last session that was pushed."""
    leases: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """By broker id, session id and shard: the units that were answered."""
    reports: int = 0
    answers: int = 0
    max_gap_ms: float = 0.0


async def _report_sessions(link: ClusterLink, watcher: ClusterLink, acked: Acked) -> None:
    """Report sessions that replace one another, each until it is seen elsewhere."""
    acked_at = time.monotonic()
    while True:
        broker_id = f"broker-{acked.reports % BROKERS}"
        epoch = acked.sessions.get(broker_id, 0) + 1
        broker = events_pb.BrokerRecorded(
            broker_id=broker_id,
            session_id=f"{broker_id}/{epoch}",
            epoch=epoch,
            is_live=True,
            capacity_units=CAPACITY_UNITS,
        )
        message = cluster_pb.NodeMessage(broker=cluster_pb.BrokerReport(broker=broker))
        link.send(message)
        while not await watcher.wait_until(
            lambda view, broker_id=broker_id, epoch=epoch: (
                broker_id in view.brokers and view.brokers[broker_id].epoch >= epoch
            ),
            REPORT_AGAIN_MS,
        ):
            link.send(message)
        acked.sessions[broker_id] = epoch
        acked.reports += 1
        acked.max_gap_ms = max(acked.max_gap_ms, (time.monotonic() - acked_at) * 1_000)
        acked_at = time.monotonic()
        await asyncio.sleep(0.05)


async def _lease_capacity(link: ClusterLink, shard_id: int, acked: Acked) -> None:
    while True:
        request = cluster_pb.LeaseCapacityRequest(shard_id=shard_id, term=1, units_wanted=3)
        try:
            response = await link.lease_capacity(request, timeout_ms=2_000)
        except MetadataError:
            await asyncio.sleep(0.05)
            continue
        acked.answers += 1
        for lease in response.leases:
            key = (lease.broker_id, lease.session_id, shard_id)
            acked.leases[key] = max(lease.units, acked.leases.get(key, 0))
        await asyncio.sleep(0.02)


async def _kill_again_and_again(managers: Managers, link: ClusterLink) -> None:
    # A fixed seed: which replicas die is the same in every run, only the moments differ.
    chooser = random.Random(20)
    for kill in range(KILLS):
        await asyncio.sleep(BETWEEN_KILLS_S)
        async with timeout(READY_S_MAX):
            await link.wait_connected()
        leader = managers.node_at(link.leader_endpoint)
        followers = [node_id for node_id in managers.node_ids if node_id != leader]
        victim = chooser.choice(followers) if kill % 5 == 4 else leader
        managers.kill(victim)
        await asyncio.sleep(chooser.uniform(0.0, 0.5))
        managers.start(victim)


async def _log_of(managers: Managers, node_id: str, position: int) -> list[bytes]:
    """Return a replica's events up to a position: more may be committed from one to the next."""
    async with member_channel(f"127.0.0.1:{managers.grpc[node_id]}") as channel:
        stub = shard_grpc.ShardServiceStub(channel)
        events = []
        async for batch in stub.ReadEvents(shard_pb.ReadEventsRequest(shard_id=0), timeout=20):
            assert not batch.HasField("error"), batch.error
            events += [event.SerializeToString(deterministic=True) for event in batch.events]
        return events[:position]


def _check_history(log: list[bytes], acked: Acked) -> None:
    """Fold the log, checking each step, and find everything that was acked in it."""
    state: ClusterState = INITIAL
    leased: dict[tuple[str, str, int], int] = {}
    epochs: dict[str, int] = {}
    for number, stored in enumerate(log, start=1):
        event = events_pb.Event.FromString(stored)
        assert event.position == number
        state = evolve(state, wire.event_from_proto(event))
        match event.WhichOneof("payload"):
            case "broker_recorded":
                recorded = event.broker_recorded
                assert recorded.epoch >= epochs.get(recorded.broker_id, 0)
                epochs[recorded.broker_id] = recorded.epoch
            case "capacity_leased":
                lease = event.capacity_leased
                leased[lease.broker_id, lease.session_id, lease.shard_id] = lease.units
        for account in state.ledger.accounts.values():
            assert account.leased_units <= account.granted_units <= CAPACITY_UNITS
    for broker_id, epoch in acked.sessions.items():
        assert epochs[broker_id] >= epoch, f"session {epoch} of {broker_id} was acked and is lost"
    for key, units in acked.leases.items():
        assert leased.get(key, 0) >= units, f"a lease of {units} for {key} was acked and is lost"


async def _endure(managers: Managers, shard_server: FakeShardServer, acked: Acked) -> None:
    link = link_of(managers, "shard-node-1", endpoint=shard_server.endpoint)
    watcher = link_of(managers, "discovery-1", "discovery")

    def report_leaders() -> None:
        for shard_id in (1, 2):
            report = cluster_pb.LeaderReport(
                shard_id=shard_id, term=1, node_id="shard-node-1", grpc=shard_server.endpoint
            )
            link.send(cluster_pb.NodeMessage(leader=report))

    await link.start()
    await watcher.start()
    await ready(link)
    await ready(watcher)
    report_leaders()
    link.on_connected(report_leaders)
    load = [
        asyncio.create_task(_report_sessions(link, watcher, acked)),
        asyncio.create_task(_lease_capacity(link, 1, acked)),
        asyncio.create_task(_lease_capacity(link, 2, acked)),
    ]
    try:
        await _kill_again_and_again(managers, link)
        before = acked.reports
        async with timeout(RECOVERED_S_MAX):
            while acked.reports < before + BROKERS:
                await watcher.wait_until(lambda _: False, REPORT_AGAIN_MS)
        assert not [task for task in load if task.done()]
    finally:
        for task in load:
            task.cancel()
        await asyncio.gather(*load, return_exceptions=True)
        await link.stop()
        await watcher.stop()


@pytest.mark.timeout(300)
async def test_nothing_acked_is_lost_while_leaders_are_killed(tmp_path: Path) -> None:
    shard_server = FakeShardServer(1, 2)

    async def grant(request: shard_pb.ShardRequest) -> shard_pb.ShardResponse:
        return shard_pb.ShardResponse(
            grant=shard_pb.GrantCapacityResponse(units=request.grant.units)
        )

    shard_server.hook = grant
    shard_server.keeps_requests = False
    await shard_server.start()
    acked = Acked()
    try:
        async with Managers(tmp_path) as managers:
            await _endure(managers, shard_server, acked)
            statuses = [await managers.status(node_id) for node_id in managers.node_ids]
            position = max(status.commit_position for status in statuses)
            for node_id in managers.node_ids:
                await managers.wait_applied(node_id, position)
            logs = [await _log_of(managers, node_id, position) for node_id in managers.node_ids]
    finally:
        await shard_server.stop()

    print(
        f"{KILLS} kills, {len(logs[0])} events, {acked.reports} sessions and "
        f"{acked.answers} lease answers acked, longest gap {acked.max_gap_ms:.0f} ms"
    )
    assert logs[0] == logs[1] == logs[2]
    assert acked.answers > 0
    _check_history(logs[0], acked)
