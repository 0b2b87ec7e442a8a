"""Whether every shard is led by its preferred replica, as discovery nodes know it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.kernel.errors import MetadataError
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest
from protos.nextgen.v1.events_pb2 import ShardPlacement

ANSWER_TIMEOUT_MS = 1_000


async def misplaced_leaders(discovery_endpoints: Sequence[str]) -> list[str]:
    """Return a sentence for each shard that is not known to be led by its preferred replica.

    All discovery nodes MUST know it: a client may use any of them. One that does not answer gets a
    sentence too.
    """
    async with DiscoveryClient(discovery_endpoints) as client:
        answers = await asyncio.gather(
            *(_cluster_at(client, endpoint) for endpoint in discovery_endpoints)
        )
    sentences: dict[str, None] = {}
    for answer in answers:
        found = [str(answer)] if isinstance(answer, MetadataError) else misplaced_in(answer)
        sentences.update(dict.fromkeys(found))
    return list(sentences)


async def _cluster_at(client: DiscoveryClient, endpoint: str) -> ClusterUpdate | MetadataError:
    try:
        cluster: ClusterUpdate = await client.call_at(
            endpoint, "GetCluster", GetClusterRequest(), timeout_ms=ANSWER_TIMEOUT_MS
        )
    except MetadataError as error:
        return error
    return cluster


def misplaced_in(cluster: ClusterUpdate) -> list[str]:
    """Return a sentence for each shard of the map that its preferred replica does not lead."""
    leaders = {leader.shard_id: leader.node_id for leader in cluster.leaders}
    sentences = []
    for placement in cluster.shard_map.shards:
        preferred = preferred_leader(placement)
        leader = leaders.get(placement.shard_id)
        if leader is None:
            sentences.append(f"shard {placement.shard_id} has no leader")
        elif preferred not in (None, leader):
            sentences.append(
                f"shard {placement.shard_id} is led by {leader}, "
                f"its preferred leader is {preferred}"
            )
    return sentences


def preferred_leader(placement: ShardPlacement) -> str | None:
    """Return the node that leads the shard while all nodes are up: the first that stays."""
    leaving = set(placement.leaving)
    return next((node_id for node_id in placement.replicas if node_id not in leaving), None)
