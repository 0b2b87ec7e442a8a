"""The cluster's state, polled from a discovery node, for load processes that call shards."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.errors import MetadataError
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest

POLL_INTERVAL_MS = 500


class PolledCluster:
    """A ``WatchLink`` of ``ShardWatch``. ``look`` once, then ``run`` as a task."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.view = ClusterView()
        self._targets = targets
        self._changed = asyncio.Event()

    async def look(self) -> None:
        """Read the state once.

        Raises:
            MetadataError: No discovery node answers.
        """
        async with DiscoveryClient(self._targets) as client:
            self.view.apply(await client.call("GetCluster", GetClusterRequest()))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            await asyncio.sleep(POLL_INTERVAL_MS / 1000)
            with contextlib.suppress(MetadataError):
                await self.look()

    async def wait_until(
        self, predicate: Callable[[ClusterView], bool], timeout_ms: int | None = None
    ) -> bool:
        """Wait until ``predicate(view)`` holds; return False when ``timeout_ms`` passed first."""
        with contextlib.suppress(TimeoutError):
            async with timeout(None if timeout_ms is None else timeout_ms / 1000):
                while not predicate(self.view):
                    await self._changed.wait()
        return predicate(self.view)
