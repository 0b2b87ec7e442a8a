"""How far the logs of a cluster are, asked of its processes: shard nodes and cluster managers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from nextgen.export import log_source
from nextgen.export.log_source import ClusterLog, Committed
from nextgen.replication.ports import Role
from protos.nextgen.v1 import cluster_service_pb2_grpc as cluster_grpc
from protos.nextgen.v1 import discovery_service_pb2_grpc as discovery_grpc
from protos.nextgen.v1 import shard_service_pb2_grpc as shard_grpc
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, ReplicaStatus
from protos.nextgen.v1.events_pb2 import Event, NodeRegistered, ShardMapChanged, ShardPlacement
from protos.nextgen.v1.shard_service_pb2 import EventBatch, NodeStatus


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts as silent because this process stood still for a moment."""
    monkeypatch.setattr(log_source, "STATUS_TIMEOUT_MS", 30_000)


class FakeProcesses(
    discovery_grpc.DiscoveryServiceServicer,
    cluster_grpc.ClusterServiceServicer,
    shard_grpc.ShardServiceServicer,
):
    """A discovery node, a shard node and a cluster manager behind one address."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.cluster = ClusterUpdate()
        self.manager = ReplicaStatus(group_id=0, role=Role.LEADER, commit_position=3)

    async def GetCluster(self, _request: Any, _context: Any) -> ClusterUpdate:
        return self.cluster

    async def GetNodeStatus(self, _request: Any, _context: Any) -> NodeStatus:
        leads = ReplicaStatus(group_id=1, role=Role.LEADER, commit_position=7)
        follows = ReplicaStatus(group_id=2, role=Role.FOLLOWER, commit_position=5)
        return NodeStatus(replicas=[leads, follows])

    async def GetManagerStatus(self, _request: Any, _context: Any) -> ReplicaStatus:
        return self.manager

    async def ReadEvents(self, request: Any, _context: Any) -> AsyncIterator[EventBatch]:
        assert request.shard_id == 0
        found = [Event(position=n, shard_id=0) for n in range(request.from_position, 4)]
        yield EventBatch(events=found, next_position=4, commit_position=3)


@asynccontextmanager
async def served() -> AsyncIterator[FakeProcesses]:
    made = FakeProcesses()
    async with AsyncExitStack() as stack:
        server = grpc.aio.server()
        discovery_grpc.add_DiscoveryServiceServicer_to_server(made, server)
        cluster_grpc.add_ClusterServiceServicer_to_server(made, server)
        shard_grpc.add_ShardServiceServicer_to_server(made, server)
        made.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        stack.push_async_callback(server.stop, 0)
        made.cluster = ClusterUpdate(
            nodes=[NodeRegistered(node_id="n1", kind="shard", grpc=made.endpoint)],
            shard_map=ShardMapChanged(
                version=1, shards=[ShardPlacement(shard_id=1), ShardPlacement(shard_id=2)]
            ),
            manager_endpoints=[made.endpoint],
        )
        yield made


async def test_the_cluster_managers_log_is_that_of_shard_0() -> None:
    async with served() as processes:
        log = ClusterLog([processes.endpoint])

        positions = await log.positions()
        read = [
            event.position async for page in log.pages(0, 2, follow=False) for event in page.events
        ]

    assert positions == {
        0: Committed(3, by_leader=True),
        1: Committed(7, by_leader=True),
        2: Committed(5, by_leader=False),
    }
    assert read == [2, 3]


@pytest.mark.parametrize("managers", [[], ["127.0.0.1:1"]])
async def test_a_cluster_manager_that_is_silent_is_not_left_out(managers: list[str]) -> None:
    async with served() as processes:
        del processes.cluster.manager_endpoints[:]
        processes.cluster.manager_endpoints.extend(managers)

        positions = await ClusterLog([processes.endpoint]).positions()

    assert (positions[0], positions[1].position) == (Committed(), 7)


async def test_a_discovery_node_that_knows_no_shard_yet_tells_of_none() -> None:
    async with served() as processes:
        processes.cluster.ClearField("shard_map")

        assert await ClusterLog([processes.endpoint]).positions() == {}
