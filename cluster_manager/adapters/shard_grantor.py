"""The ``Grantor`` port: requests grants from broker managers by the shards' ``Exchange``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from nextgen.client.cluster.link import ChangeListener
from nextgen.client.cluster.view import ClusterView
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.cluster import CAPACITY_GRANT_MS_MAX
from nextgen.runtime.security.exclusions import set_excluded
from nextgen.runtime.telemetry import lookup_steps
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.shard_service_pb2 import GrantCapacityRequest, ShardRequest


class OwnClusterSource:
    """The cluster manager's own source of routes: the updates that it pushes to nodes."""

    def __init__(self) -> None:
        self.view = ClusterView()
        self._changed = asyncio.Event()
        self._listeners: list[ChangeListener] = []

    def apply(self, update: ClusterUpdate) -> None:
        """Merge an update that was pushed to the nodes."""
        self.view.apply(update)
        if update.excluded_nodes:
            set_excluded(self.view.excluded_nodes)
        for listener in self._listeners:
            listener(self.view, update)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def on_change(self, listener: ChangeListener) -> None:
        """Call ``listener(view, update)`` after each update."""
        self._listeners.append(listener)

    async def wait_until(
        self, predicate: Callable[[ClusterView], bool], timeout_ms: int | None = None
    ) -> bool:
        """Wait until ``predicate(view)`` holds; return False when ``timeout_ms`` passed first."""
        with contextlib.suppress(TimeoutError):
            async with timeout(None if timeout_ms is None else timeout_ms / 1_000):
                while not predicate(self.view):
                    await self._changed.wait()
        return predicate(self.view)


class ShardGrantor:
    """Grants capacity at the shard that has the slot of the broker's id."""

    def __init__(self, source: OwnClusterSource) -> None:
        self._pool = ExchangePool(lambda: source.view.shard_map_version)
        self._router = ShardRouter(source, self._pool)

    async def grant(self, *, broker_id: str, session_id: str, units: int) -> int:
        """See ``Grantor.grant``. Repeating it is harmless: units are a total."""
        request = ShardRequest(
            grant=GrantCapacityRequest(broker_id=broker_id, session_id=session_id, units=units)
        )
        parent = lookup_steps.grant_parent(session_id)
        lookup_steps.step(6, parent)
        response = await self._router.call_key(
            broker_id, request, timeout_ms=CAPACITY_GRANT_MS_MAX, idempotent=True
        )
        if response.WhichOneof("body") != "grant":
            raise InvalidRequest(f"the broker manager of {broker_id} does not know this request")
        lookup_steps.step(7, parent)
        return response.grant.units

    async def stop(self) -> None:
        """Close the connections to shard nodes."""
        await self._pool.stop()
