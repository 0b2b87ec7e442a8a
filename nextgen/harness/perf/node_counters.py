"""Counters since the start of shard nodes, summed over all nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import grpc

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.errors import error_of_rpc
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest
from protos.nextgen.v1.shard_service_pb2 import GetNodeStatusRequest
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub

ANSWER_TIMEOUT_MS = 5_000


async def shard_counters(targets: Sequence[str]) -> Counter[str]:
    """Return the counters of all shard nodes added up, by name.

    Raises:
        MetadataError: A node does not answer, so its counts would be missing.
    """
    async with DiscoveryClient(targets) as client:
        cluster = await client.call("GetCluster", GetClusterRequest())
    total: Counter[str] = Counter()
    for node in cluster.nodes:
        if node.kind != "shard":
            continue
        channel = open_channel(node.grpc)
        try:
            status = await ShardServiceStub(channel).GetNodeStatus(
                GetNodeStatusRequest(), timeout=ANSWER_TIMEOUT_MS / 1000
            )
        except grpc.RpcError as error:
            raise error_of_rpc(error) from error
        finally:
            await close_channel(channel)
        total.update(status.counters)
    return total
