"""The link to the cluster manager against real gRPC servers in this process."""

import asyncio
from pathlib import Path

import pytest

from nextgen.client.cluster import link as cluster_link
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.transport.member_gate import MemberGate
from nextgen.kernel.errors import NotLeader, RefusesToStart, Unavailable, WrongCluster
from nextgen.runtime.security.cluster_proof import ClusterCredentials
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import cluster_service_pb2 as pb
from protos.nextgen.v1.events_pb2 import BrokerRecorded, QuotasSet
from tests.support.discovery.fake_cluster import FakeClusterServer, full_update, shard_map

WAIT_S = 30
"""For what must happen. Only a failing test waits that long."""


@pytest.fixture
async def managers():
    managers = [FakeClusterServer(full_update({1: "a:1"})) for _ in range(3)]
    for manager in managers:
        await manager.start()
    yield managers
    for manager in managers:
        await manager.stop()


@pytest.fixture
async def link(managers):
    hello = pb.Hello(cluster_id="c", node_id="discovery-1", kind="discovery")
    link = ClusterLink([manager.endpoint for manager in managers], hello)
    yield link
    await link.stop()


def lead(managers, leader):
    for manager in managers:
        manager.error = None if manager is leader else NotLeader(0, leader.endpoint)


async def test_it_follows_the_hint_to_the_leader(managers, link):
    lead(managers, managers[2])
    connected = []
    link.on_connected(lambda: connected.append(link.leader_endpoint))

    await link.start()
    async with timeout(WAIT_S):
        await link.wait_ready()

    assert connected == [managers[2].endpoint]
    assert link.view.leader_endpoint(1) == "a:1"
    assert managers[2].hellos[0].node_id == "discovery-1"


async def test_changes_reach_view_listeners_and_those_who_wait(managers, link):
    lead(managers, managers[0])
    changes, transfers = [], []
    link.on_change(lambda view, update: changes.append((view.leader_term(1), update.full)))
    link.on_transfer(transfers.append)
    await link.start()
    await link.wait_ready()

    waiting = asyncio.create_task(
        link.wait_until(lambda view: view.leader_term(1) == 4, WAIT_S * 1_000)
    )
    managers[0].push(
        pb.ClusterUpdate(
            leaders=[pb.LeaderReport(shard_id=1, term=4, grpc="b:1")],
            transfers=[pb.LeadershipTransfer(shard_id=1, target="node-2")],
        )
    )

    assert await waiting
    assert changes == [(1, True), (4, False)]
    assert [transfer.target for transfer in transfers] == ["node-2"]


@pytest.mark.parametrize(
    "update",
    [
        pb.ClusterUpdate(loads=[pb.BrokerLoad(broker_id="b", session_id="s")]),
        pb.ClusterUpdate(quotas=QuotasSet(version=1)),
        pb.ClusterUpdate(brokers=[BrokerRecorded(broker_id="b", session_id="s", epoch=1)]),
    ],
    ids=["loads", "quotas", "brokers"],
)
async def test_whatever_an_update_tells_it_is_not_taken_for_an_echo(managers, link, update):
    lead(managers, managers[0])
    told = asyncio.Queue()
    link.on_change(lambda _view, update: told.put_nowait(update))
    await link.start()
    await link.wait_ready()
    await told.get()

    managers[0].push(pb.ClusterUpdate(heartbeat_sequence=9))
    managers[0].push(update)

    async with timeout(WAIT_S):
        assert await told.get() == update
    assert told.empty(), "an echo is no change"


async def test_a_listener_that_fails_disturbs_nobody(managers, link):
    lead(managers, managers[0])

    def fail(_view, _update):
        raise ValueError("a mistake")

    seen = []
    link.on_change(fail)
    link.on_change(lambda view, _update: seen.append(view.shard_map_version))
    await link.start()
    await link.wait_ready()

    assert seen == [1]
    assert link.is_connected


async def test_a_new_leader_is_found_when_the_old_one_dies(managers, link):
    lead(managers, managers[0])
    await link.start()
    await link.wait_ready()
    link.send(pb.NodeMessage(leader=pb.LeaderReport(shard_id=1, term=1)))
    reconnected = asyncio.Event()
    link.on_connected(reconnected.set)

    lead(managers, managers[1])
    await managers[0].stop()

    async with timeout(WAIT_S):
        await reconnected.wait()
    assert link.leader_endpoint == managers[1].endpoint
    assert managers[1].hellos[-1].shard_map_version == 1


async def test_without_a_cluster_manager_the_view_stays_and_messages_are_dropped(managers, link):
    lead(managers, managers[0])
    await link.start()
    await link.wait_ready()

    for manager in managers:
        await manager.stop()
    async with timeout(WAIT_S):
        while link.is_connected:  # The link has no event for its loss.
            await asyncio.sleep(0.01)

    assert link.view.leader_endpoint(1) == "a:1"
    assert not link.send(pb.NodeMessage())
    with pytest.raises(Unavailable):
        await link.lease_capacity(pb.LeaseCapacityRequest(), 500)


async def test_capacity_is_leased_from_the_leader(managers, link):
    lead(managers, managers[1])
    await link.start()
    await link.wait_ready()

    response = await link.lease_capacity(
        pb.LeaseCapacityRequest(shard_id=1, units_wanted=9), WAIT_S * 1_000
    )

    assert response.leases[0].units == 9


async def test_a_change_of_a_map_that_is_not_known_brings_the_whole_map(managers, link):
    lead(managers, managers[0])
    seen = []
    link.on_change(lambda view, _update: seen.append(view.shard_map_version))
    await link.start()
    await link.wait_ready()
    assert managers[0].hellos[0].takes_deltas

    managers[0].push(pb.ClusterUpdate(map_delta=pb.ShardMapDelta(from_version=1, version=2)))
    assert await link.wait_until(lambda view: view.shard_map_version == 2, WAIT_S * 1_000)
    managers[0].first = pb.ClusterUpdate(full=True, shard_map=shard_map({1: ["b"]}, version=8))
    managers[0].push(pb.ClusterUpdate(map_delta=pb.ShardMapDelta(from_version=7, version=8)))

    assert await link.wait_until(lambda view: view.shard_map_version == 8, WAIT_S * 1_000)
    assert list(link.view.placements[1].replicas) == ["b"]
    assert [hello.shard_map_version for hello in managers[0].hellos] == [0, 2]
    assert seen == [1, 2, 8]


async def test_silence_means_reconnect(managers, link, monkeypatch):
    monkeypatch.setattr(cluster_link, "MANAGER_HEARTBEAT_MS", 50)
    monkeypatch.setattr(cluster_link, "MANAGER_SILENCE_MS_MAX", 200)
    lead(managers, managers[0])
    managers[0].echoes = False
    await link.start()
    await link.wait_ready()

    async with timeout(WAIT_S):
        while len(managers[0].hellos) < 2 or not managers[0].received:
            await asyncio.sleep(0.01)

    assert managers[0].received[0].HasField("heartbeat")


async def test_echoes_keep_the_connection_and_wake_no_listener(managers, link, monkeypatch):
    monkeypatch.setattr(cluster_link, "MANAGER_HEARTBEAT_MS", 100)
    monkeypatch.setattr(cluster_link, "MANAGER_SILENCE_MS_MAX", 3_500)
    lead(managers, managers[0])
    changes = []
    link.on_change(lambda _view, update: changes.append(update))
    await link.start()
    await link.wait_ready()

    await asyncio.sleep(5)  # Longer than silence is put up with.

    assert managers[0].received
    assert len(managers[0].hellos) == 1
    assert len(changes) == 1


async def test_a_node_of_another_cluster_gives_up_and_says_why(managers, link):
    for manager in managers:
        manager.error = WrongCluster("this is cluster a, not c")
    await link.start()

    async with timeout(WAIT_S):
        with pytest.raises(WrongCluster, match="cluster a"):
            await link.wait_ready()


GUARDED = MemberGate(ClusterCredentials("c", b"0123456789abcdef", Path("/secret")))


async def restarted(managers, gate):
    for manager in managers:
        manager.gate = gate
        await manager.stop()
        await manager.start(manager.port)


async def test_a_node_that_every_manager_refuses_for_want_of_proof_gives_up(managers, link):
    await restarted(managers, GUARDED)
    await link.start()

    async with timeout(WAIT_S):
        with pytest.raises(RefusesToStart, match="every cluster manager refuses this process"):
            await link.wait_ready()


async def test_a_node_that_one_manager_refuses_for_want_of_proof_joins_at_another(managers, link):
    await restarted(managers[:2], GUARDED)
    lead(managers, managers[2])
    await link.start()

    async with timeout(WAIT_S):
        await link.wait_ready()

    assert link.leader_endpoint == managers[2].endpoint


async def test_a_node_that_was_connected_outlasts_managers_that_refuse_it(managers, link):
    lead(managers, managers[0])
    await link.start()
    async with timeout(WAIT_S):
        await link.wait_ready()
        await restarted(managers, GUARDED)
        while len(link._refused_by) < len(managers):
            await asyncio.sleep(0.05)

        await restarted(managers, MemberGate(None))
        await link.wait_connected()

    assert link.refusal is None
