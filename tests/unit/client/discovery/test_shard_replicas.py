"""Where the replicas of a shard are; shard 0 is the cluster manager."""

from __future__ import annotations

import pytest

from nextgen.client.discovery.shard_replicas import ShardReplicas, replicas_of
from nextgen.kernel.errors import Refused, Unavailable
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, LeaderReport
from protos.nextgen.v1.events_pb2 import NodeRegistered, ShardMapChanged, ShardPlacement


class Nodes:
    """Discovery nodes that know this cluster."""

    def __init__(self, cluster: ClusterUpdate) -> None:
        self._cluster = cluster

    async def call(self, method, request, response_type, *, timeout_ms):
        assert method == "GetCluster"
        return self._cluster


MAP = ShardMapChanged(shards=[ShardPlacement(shard_id=1, replicas=["a", "b"])])
NODES = [NodeRegistered(node_id="a", grpc="a:1"), NodeRegistered(node_id="b", grpc="b:1")]


async def test_the_replicas_of_a_shard_have_addresses_and_a_leader():
    leader = LeaderReport(shard_id=1, node_id="b", grpc="b:1")
    cluster = ClusterUpdate(shard_map=MAP, nodes=NODES, leaders=[leader])

    found = await replicas_of(Nodes(cluster), 1)

    assert found == ShardReplicas(1, {"a": "a:1", "b": "b:1"}, "b:1")
    assert found.in_order(followers_first=True) == ["a:1", "b:1"]


async def test_shard_0_is_read_at_the_cluster_managers():
    cluster = ClusterUpdate(shard_map=MAP, nodes=NODES, manager_endpoints=["m:1", "n:1"])

    found = await replicas_of(Nodes(cluster), 0)

    assert sorted(found.in_order(followers_first=False)) == ["m:1", "n:1"]


async def test_a_node_that_knows_no_cluster_manager_yet_is_asked_again():
    with pytest.raises(Unavailable):
        await replicas_of(Nodes(ClusterUpdate(shard_map=MAP)), 0)


async def test_a_shard_that_does_not_exist_is_refused():
    with pytest.raises(Refused, match="there is no shard 7"):
        await replicas_of(Nodes(ClusterUpdate(shard_map=MAP, nodes=NODES)), 7)
