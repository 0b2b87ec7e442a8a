"""What tests ask of the replicas of a cluster's one shard."""

from __future__ import annotations

import asyncio

import grpc.aio

from nextgen.cli.local.cluster import LocalCluster
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub
from tests.support.callers.member_channel import member_channel

SHARD = 1
CAUGHT_UP_S_MAX = 60
LEADER_S_MAX = 60
ANSWER_S_MAX = 20


async def status_of(cluster: LocalCluster, node_id: str) -> cluster_pb.ReplicaStatus:
    async with member_channel(cluster.plan.node(node_id).grpc) as channel:
        stub = ShardServiceStub(channel)
        node = await stub.GetNodeStatus(shard_pb.GetNodeStatusRequest(), timeout=ANSWER_S_MAX)
    return {replica.group_id: replica for replica in node.replicas}[SHARD]


async def leader_and_followers(cluster: LocalCluster) -> tuple[str, list[str]]:
    """Return the leader and the other live replicas, waiting for an election if need be."""
    nodes = [
        node.node_id
        for node in cluster.plan.of_kind("shard-node")
        if cluster.is_running(node.node_id)
    ]
    async with timeout(LEADER_S_MAX):
        while True:
            for node_id in nodes:
                if await _leads(cluster, node_id):
                    return node_id, [other for other in nodes if other != node_id]
            await asyncio.sleep(0.1)


async def wait_caught_up(cluster: LocalCluster, node_id: str, leader: str) -> None:
    """Return when the replica has what the leader has committed by now, and votes."""
    wanted = (await status_of(cluster, leader)).commit_position
    async with timeout(CAUGHT_UP_S_MAX):
        while True:
            status = await status_of(cluster, node_id)
            # It may well be made the leader again: it is if the shard map prefers it.
            votes = status.role in ("follower", "leader")
            if votes and status.applied_position >= wanted:
                return
            await asyncio.sleep(0.1)


async def _leads(cluster: LocalCluster, node_id: str) -> bool:
    try:
        return (await status_of(cluster, node_id)).role == "leader"
    except (grpc.aio.AioRpcError, LookupError):
        return False  # It is starting, or has no replica yet.
