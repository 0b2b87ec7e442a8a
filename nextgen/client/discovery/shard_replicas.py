"""The endpoints of a shard's replicas, as a discovery node knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.replication.ports import CLUSTER_MANAGER_GROUP_ID
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest

CALL_TIMEOUT_MS = 15_000
"""Time for some discovery node to return the replicas."""


@dataclass(frozen=True, slots=True)
class ShardReplicas:
    """The replicas that have an address, by node id. ``leader`` is None between two leaders."""

    shard_id: int
    endpoints: Mapping[str, str]
    leader: str | None

    def in_order(self, *, followers_first: bool) -> list[str]:
        """Return every endpoint: the leader's first, or last with ``followers_first``."""
        followers = [each for each in self.endpoints.values() if each != self.leader]
        leader = [self.leader] if self.leader is not None else []
        return followers + leader if followers_first else leader + followers


async def replicas_of(nodes: DiscoveryNodes, shard_id: int) -> ShardReplicas:
    """Return the replicas of a shard, or with shard 0 those of the cluster manager.

    Raises:
        Refused: There is no such shard.
        Unavailable: No replica has an address, or the node has just started.
        MetadataError: No discovery node answers.
    """
    cluster = await nodes.call(
        "GetCluster", GetClusterRequest(), ClusterUpdate, timeout_ms=CALL_TIMEOUT_MS
    )
    if shard_id == CLUSTER_MANAGER_GROUP_ID:
        return _of_cluster_manager(cluster)
    address = {node.node_id: node.grpc for node in cluster.nodes if node.grpc}
    placement = next((one for one in cluster.shard_map.shards if one.shard_id == shard_id), None)
    if placement is None and not cluster.shard_map.shards:
        raise Unavailable("no shard map is known there yet")  # It has just started.
    if placement is None:
        known = sorted(one.shard_id for one in cluster.shard_map.shards)
        raise Refused(RejectionCode.NOT_FOUND, f"there is no shard {shard_id}, known are {known}")
    endpoints = {node: address[node] for node in placement.replicas if node in address}
    leader = next((one for one in cluster.leaders if one.shard_id == shard_id), None)
    if leader is not None:
        endpoints.setdefault(leader.node_id, leader.grpc)
    if not endpoints:
        raise Unavailable(f"no replica of shard {shard_id} is known")
    return ShardReplicas(shard_id, endpoints, leader.grpc if leader is not None else None)


def _of_cluster_manager(cluster: ClusterUpdate) -> ShardReplicas:
    """Return its replicas by address; readers need not know which of them leads."""
    endpoints = {endpoint: endpoint for endpoint in cluster.manager_endpoints}
    if not endpoints:
        raise Unavailable("no replica of the cluster manager is known there yet")
    return ShardReplicas(CLUSTER_MANAGER_GROUP_ID, endpoints, None)
