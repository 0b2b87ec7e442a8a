"""Locates this broker's manager by the cluster state that the cluster manager pushes."""

from __future__ import annotations

import asyncio
import contextlib

from brokers.ports.session import ManagerLocation
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.cluster.view import ClusterView
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate


class ClusterLocator:
    """Follows the leader of the shard that has the slot of ``broker_id``."""

    def __init__(self, link: ClusterLink, broker_id: str) -> None:
        self._view = link.view
        self._broker_id = broker_id
        self._changed = asyncio.Event()
        self._known = self.location()
        link.on_change(self._on_change)

    def location(self) -> ManagerLocation | None:
        shard_id = self._view.shard_for_key(self._broker_id)
        if shard_id is None:
            return None
        endpoint = self._view.leader_endpoint(shard_id)
        return ManagerLocation(endpoint, self._view.leader_term(shard_id)) if endpoint else None

    async def wait_change(self, timeout_ms: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with timeout(timeout_ms / 1000):
                await self._changed.wait()

    def _on_change(self, _view: ClusterView, _update: ClusterUpdate) -> None:
        location = self.location()
        if location != self._known:
            self._known = location
            # All waits share the present event, so that one change wakes all of them.
            self._changed.set()
            self._changed = asyncio.Event()
