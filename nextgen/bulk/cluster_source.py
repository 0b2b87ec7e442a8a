"""The shard map and leaders, fetched from discovery for the request router of a tool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from nextgen.client.cluster.link import ChangeListener
from nextgen.client.cluster.view import ClusterView
from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest

ASK_TIMEOUT_MS = 10_000
"""Time-out for an answer of any discovery node."""

ASK_PAUSE_MS = 100
"""Pause between two requests while a caller waits for a change."""


class AskedCluster:
    """A ``ClusterSource`` that polls discovery only while a caller waits. Close it."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.view = ClusterView()
        self._nodes = DiscoveryNodes(endpoints)
        self._listeners: list[ChangeListener] = []

    def on_change(self, listener: ChangeListener) -> None:
        """Call ``listener(view, update)`` after each answer that was merged into the view."""
        self._listeners.append(listener)

    async def ask(self) -> None:
        """Merge a discovery node's view of the cluster into this one.

        Raises:
            Unavailable: No discovery node has a shard map.
            MetadataError: No discovery node answers.
        """
        update = await self._nodes.call(
            "GetCluster", GetClusterRequest(), ClusterUpdate, timeout_ms=ASK_TIMEOUT_MS
        )
        self.view.apply(update)
        for listener in self._listeners:
            listener(self.view, update)
        if self.view.slot_table is None:
            raise Unavailable("discovery has no shard map yet")

    async def wait_until(
        self, predicate: Callable[[ClusterView], bool], timeout_ms: int | None = None
    ) -> bool:
        """Poll discovery until ``predicate`` is true; return whether it came true in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (ASK_TIMEOUT_MS if timeout_ms is None else timeout_ms) / 1000
        while not predicate(self.view):
            remaining_s = deadline - loop.time()
            if remaining_s <= 0:
                return False
            try:
                async with timeout(remaining_s):
                    await self.ask()
                    if not predicate(self.view):
                        await asyncio.sleep(ASK_PAUSE_MS / 1000)
            except (TimeoutError, MetadataError):
                await asyncio.sleep(min(max(0.0, deadline - loop.time()), ASK_PAUSE_MS / 1000))
        return True

    async def close(self) -> None:
        await self._nodes.close()
