"""One replica as a process: capacity through a shard's broker manager, probes, bad input."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import grpc.aio
import pytest

from nextgen.client.cluster.link import ClusterLink
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.errors import (
    ConnectionLost,
    InvalidRequest,
    NotLeader,
    Unavailable,
    WrongCluster,
)
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import cluster_service_pb2_grpc as cluster_grpc
from protos.nextgen.v1 import events_pb2 as events_pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1 import shard_service_pb2_grpc as shard_grpc
from tests.integration.cluster_manager.managers import (
    ANSWER_S_MAX,
    READY_S_MAX,
    SEEN_MS_MAX,
    Managers,
    connected,
    link_of,
    ready,
    report,
)
from tests.support.callers.member_channel import member_channel
from tests.support.discovery.fake_shard_server import FakeShardServer
from tests.support.processes.fork_server import run_warm

READY = json.dumps({"ready": True, "reasons": []})


async def _fetch(managers: Managers, path: str) -> tuple[int, str]:
    (node_id,) = managers.node_ids

    def fetch() -> tuple[int, str]:
        try:
            url = f"http://127.0.0.1:{managers.http[node_id]}{path}"
            with urllib.request.urlopen(url, timeout=ANSWER_S_MAX) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(fetch)


async def _shows(managers: Managers, *samples: str) -> bool:
    """Return whether the replica's page of metrics has all of these lines."""
    page = (await _fetch(managers, "/metrics"))[1].splitlines()
    return all(sample in page for sample in samples)


async def _leased(
    link: ClusterLink, request: cluster_pb.LeaseCapacityRequest
) -> Sequence[cluster_pb.CapacityLease]:
    """Return what is leased, nothing while it cannot be asked for."""
    try:
        return (await link.lease_capacity(request, SEEN_MS_MAX)).leases
    except (Unavailable, ConnectionLost, NotLeader):
        return ()


def _run_refused(arguments: list[str]) -> str:
    """Run a process that must refuse to start; return what it says."""
    done = run_warm("cluster_manager", arguments, environment=os.environ, timeout_s=READY_S_MAX)
    assert done.returncode == 78, done.stderr
    return done.stderr


async def test_capacity_is_granted_by_the_broker_manager_before_it_is_leased(
    tmp_path: Path,
) -> None:
    shard_server = FakeShardServer(1, 2)
    granted: list[shard_pb.GrantCapacityRequest] = []

    async def grant(request: shard_pb.ShardRequest) -> shard_pb.ShardResponse:
        granted.append(request.grant)
        return shard_pb.ShardResponse(
            grant=shard_pb.GrantCapacityResponse(units=request.grant.units)
        )

    shard_server.hook = grant
    endpoint = await shard_server.start()
    async with Managers(tmp_path, count=1) as managers:
        link = link_of(managers, "shard-node-1", endpoint=endpoint)
        await link.start()
        try:
            await ready(link)
            for shard_id in (1, 2):
                leader = cluster_pb.LeaderReport(
                    shard_id=shard_id, term=1, node_id="shard-node-1", grpc=endpoint
                )
                await report(
                    link,
                    cluster_pb.NodeMessage(leader=leader),
                    link,
                    lambda view, shard_id=shard_id: view.leader_term(shard_id) == 1,
                )
            broker = events_pb.BrokerRecorded(
                broker_id="broker-1", session_id="s-1", epoch=1, is_live=True, capacity_units=100
            )
            message = cluster_pb.NodeMessage(broker=cluster_pb.BrokerReport(broker=broker))
            await report(link, message, link, lambda view: "broker-1" in view.brokers)

            request = cluster_pb.LeaseCapacityRequest(shard_id=1, term=1)
            async with timeout(ANSWER_S_MAX):
                # A broker manager that is late is left out for a while.
                while not (leases := await _leased(link, request)):
                    await asyncio.sleep(0.1)

            assert [(lease.broker_id, lease.units) for lease in leases] == [("broker-1", 25)]
            assert leases[0].ttl_ms == 90_000
            assert {(g.broker_id, g.session_id, g.units) for g in granted} == {
                ("broker-1", "s-1", 100)
            }
        finally:
            await link.stop()
            await shard_server.stop()


async def test_a_single_replica_serves_by_itself_and_shows_what_it_has(tmp_path: Path) -> None:
    async with Managers(tmp_path, count=1) as managers:
        link = link_of(managers, "shard-node-1")
        await link.start()
        try:
            await ready(link)
            assert (await _fetch(managers, "/livez"))[0] == 200
            # One that stood still leads again, and is joined again, a little later.
            async with timeout(ANSWER_S_MAX):
                while await _fetch(managers, "/readyz") != (200, READY):
                    await asyncio.sleep(0.1)
                while not await _shows(
                    managers,
                    "nextgen_cluster_manager_is_leader 1.0",
                    "nextgen_cluster_manager_connected_nodes 1.0",
                    "nextgen_cluster_manager_shard_map_version 1.0",
                ):
                    await asyncio.sleep(0.1)
            assert managers.terminate(managers.node_ids[0]) == 0
        finally:
            await link.stop()


async def test_a_node_of_another_cluster_is_refused_and_the_others_are_not_disturbed(
    tmp_path: Path,
) -> None:
    async with Managers(tmp_path, count=1) as managers:
        good = link_of(managers, "shard-node-1")
        bad = link_of(managers, "shard-node-9", cluster_id="other")
        await good.start()
        await ready(good)
        await bad.start()
        try:
            with pytest.raises(WrongCluster, match="belongs to cluster 'other'"):
                await ready(bad)
            await connected(good)
            assert "shard-node-9" not in good.view.nodes
        finally:
            await good.stop()
            await bad.stop()


async def test_malformed_streams_and_foreign_requests_are_refused(tmp_path: Path) -> None:
    async with Managers(tmp_path, count=1) as managers:
        link = link_of(managers, "shard-node-1")
        await link.start()
        await ready(link)
        async with member_channel(managers.endpoints[0]) as channel:
            cluster = cluster_grpc.ClusterServiceStub(channel)
            shards = shard_grpc.ShardServiceStub(channel)

            join = cluster.Join(timeout=ANSWER_S_MAX)
            await join.write(cluster_pb.NodeMessage(heartbeat=cluster_pb.NodeHeartbeat()))
            assert (await join.read()).error.reason == "INVALID_REQUEST"

            garbage = channel.stream_stream("/nextgen.v1.ClusterService/Join")(timeout=ANSWER_S_MAX)
            await garbage.write(b"\xff\xff\xff\xff")
            refusal = cluster_pb.ClusterUpdate.FromString(await garbage.read())
            assert refusal.error.reason == "INVALID_REQUEST"

            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await cluster.LeaseCapacity(
                    cluster_pb.LeaseCapacityRequest(shard_id=9), timeout=ANSWER_S_MAX
                )
            assert isinstance(error_of_rpc(failure.value), InvalidRequest)

            request = shard_pb.ReadEventsRequest(shard_id=1)
            (batch,) = [batch async for batch in shards.ReadEvents(request, timeout=ANSWER_S_MAX)]
            assert batch.error.reason == "INVALID_REQUEST"
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await shards.GetNodeStatus(shard_pb.GetNodeStatusRequest(), timeout=ANSWER_S_MAX)
            assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED
        await connected(link)
        await link.stop()


async def test_events_are_followed_as_they_commit(tmp_path: Path) -> None:
    async with Managers(tmp_path, count=1) as managers:
        link = link_of(managers, "shard-node-1")
        await link.start()
        await ready(link)
        async with member_channel(managers.endpoints[0]) as channel:
            request = shard_pb.ReadEventsRequest(
                shard_id=0, follow=True, events_max=2, types=["node_registered"]
            )
            following = shard_grpc.ShardServiceStub(channel).ReadEvents(
                request, timeout=ANSWER_S_MAX
            )
            seen = [event async for event in _one(following)]

            late = link_of(managers, "discovery-1", "discovery")
            await late.start()
            seen += [event async for event in _one(following)]
            assert await following.read() is grpc.aio.EOF
            await late.stop()
        await link.stop()

    assert [event.node_registered.node_id for event in seen] == ["shard-node-1", "discovery-1"]
    assert [event.position for event in seen] == [1, 3]


async def _one(stream: object):  # type: ignore[no-untyped-def]
    """Yield the events of the next batch that has any."""
    while True:
        batch = await stream.read()  # type: ignore[attr-defined]
        if batch.events:
            for event in batch.events:
                yield event
            return


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    managers = Managers(tmp_path, count=1)
    (node_id,) = managers.node_ids
    with socket.create_server(("127.0.0.1", 0)) as taken:
        managers.grpc[node_id] = taken.getsockname()[1]

        said = _run_refused(managers.arguments(node_id))

    assert f"cannot listen on 127.0.0.1:{managers.grpc[node_id]}" in said


async def test_another_cluster_or_node_may_not_use_the_data_directory(tmp_path: Path) -> None:
    managers = Managers(tmp_path, count=1)
    (node_id,) = managers.node_ids
    async with managers:
        await managers.status(node_id)
        managers.kill(node_id)

    before = sorted(path.name for path in (tmp_path / node_id).rglob("*"))
    foreign = Managers(tmp_path, count=1, cluster_id="other")

    said = _run_refused(foreign.arguments(node_id))

    assert "belongs to cluster_manager 'cluster-manager-1' of cluster 'test'" in said
    assert sorted(path.name for path in (tmp_path / node_id).rglob("*")) == before


def test_settings_that_are_missing_are_named() -> None:
    said = _run_refused(["--node-id", "cluster-manager-1"])

    assert "--cluster-id (or NEXTGEN_CLUSTER_ID) is missing" in said
