"""Nodes of a running cluster that only decide what clients may do: a link and a table each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nextgen.client.cluster.link import ClusterLink
from nextgen.client.permissions.table import PermissionTable, permission_streams
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.kernel.governance.access_rules import AccessRules
from protos.nextgen.v1.cluster_service_pb2 import Hello


class DecidingNode:
    """What discovery and brokers have of a cluster to decide by."""

    def __init__(self, node_id: str, managers: str, rules: AccessRules) -> None:
        hello = Hello(cluster_id="test", node_id=node_id, kind="client")
        self.link = ClusterLink(managers.split(","), hello)
        self._pool = ExchangePool(lambda: self.link.view.shard_map_version)
        self.streams = permission_streams(node_id, self.link)
        router = ShardRouter(self.link, self._pool)
        self.table = PermissionTable(rules, self.streams, router)

    async def start(self) -> None:
        await self.link.start()
        await self.link.wait_ready()

    async def stop(self) -> None:
        await self.table.stop()
        await self.streams.stop()
        await self._pool.stop()
        await self.link.stop()


@asynccontextmanager
async def deciding_nodes(
    managers: str, *node_ids: str, rules: AccessRules
) -> AsyncIterator[list[DecidingNode]]:
    nodes = [DecidingNode(node_id, managers, rules) for node_id in node_ids]
    try:
        for node in nodes:
            await node.start()
        yield nodes
    finally:
        for node in nodes:
            await node.stop()
