"""Changes of a scalable topic's layout, asked of its shard."""

from __future__ import annotations

import os
from collections.abc import Sequence

from nextgen.client.cluster.link import ClusterLink
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import Hello

TIMEOUT_MS = 30_000


async def change_layout(
    managers: str, cluster_id: str, name: str, kind: str, segments: Sequence[int]
) -> None:
    """Split or merge segments; returns once the layout has changed."""
    hello = Hello(cluster_id=cluster_id, node_id="layout-changes", kind="client")
    link = ClusterLink(managers.split(","), hello)
    pool = ExchangePool(lambda: link.view.shard_map_version)
    body = pb.ChangeLayout(name=name, kind=kind, segments=segments)
    command = pb.Command(command_id=os.urandom(16), change_layout=body)
    request = pb.ShardRequest(execute=pb.ExecuteRequest(commands=[command]))
    await link.start()
    try:
        await link.wait_ready()
        key = parse_topic(name).routing_key
        response = await ShardRouter(link, pool).call_key(key, request, timeout_ms=TIMEOUT_MS)
        (result,) = response.execute.results
        assert not result.rejection_code, result
    finally:
        await pool.stop()
        await link.stop()
