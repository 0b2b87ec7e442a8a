"""Where shards and their leaders are, asked of discovery: what a router of a tool goes by."""

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
"""For some discovery node to answer."""

ASK_PAUSE_MS = 100
"""Between two questions while somebody waits for a change."""


class AskedCluster:
    """A ``ClusterSource`` that asks when somebody waits, and never else. Close it."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.view = ClusterView()
        self._nodes = DiscoveryNodes(endpoints)
        self._listeners: list[ChangeListener] = []

    def on_change(self, listener: ChangeListener) -> None:
        """Call ``listener(view, update)`` after each answer that was merged into the view."""
        self._listeners.append(listener)

    async def ask(self) -> None:
        """Learn what a discovery node knows.

        Raises:
            Unavailable: None knows a shard map.
            MetadataError: None answers.
        """
        update = await self._nodes.call(
            "GetCluster", GetClusterRequest(), ClusterUpdate, timeout_ms=ASK_TIMEOUT_MS
        )
        self.view.apply(update)
        for listener in self._listeners:
            listener(self.view, update)
        if self.view.slot_table is None:
            raise Unavailable("discovery knows no shard map yet")

    async def wait_until(
        self, predicate: Callable[[ClusterView], bool], timeout_ms: int | None = None
    ) -> bool:
        """Return whether ``predicate`` came true in time; discovery is asked again and again."""
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
