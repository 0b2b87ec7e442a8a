"""Locates the manager of a stock broker while no other broker uses its node id.

A broker manager lets the later of two processes with one node id replace the other's session, as a
restarted process has to. Two sidecars with one node id would take their session from each other
without end, and their brokers' topics with it. So a sidecar begins no session while another broker
has one: it waits until that one is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from brokers.ports.plugin import PluginFault
from brokers.ports.session import Clock, ManagerLocation, ManagerLocator
from brokers.service.sidecar.plugin_faults import PluginFaults
from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.limits.stream import NODE_ID_LOST_MS


class _Cluster(Protocol):
    @property
    def view(self) -> ClusterView: ...


class UncontestedLocator:
    """See ``ManagerLocator``. The sidecar sets ``urls`` and ``session_id``."""

    def __init__(
        self,
        locator: ManagerLocator,
        cluster: _Cluster,
        node_id: str,
        *,
        clock: Clock,
        faults: PluginFaults,
    ) -> None:
        self._locator = locator
        self._cluster = cluster
        self._node_id = node_id
        self._clock = clock
        self._faults = faults
        self.urls = ""
        """Of the broker that is commanded; "": there is none, so nothing contests its node id."""
        self.session_id: Callable[[], str] = lambda: ""
        """Returns the present session of this process, "" without one."""
        self._own: set[str] = set()
        self._was_in_session = False
        self._rests_until_ms = 0

    def location(self) -> ManagerLocation | None:
        self._note_session()
        if self._other() or self._clock() < self._rests_until_ms:
            return None
        return self._locator.location()

    async def wait_change(self, timeout_ms: int) -> None:
        await self._locator.wait_change(timeout_ms)

    def _note_session(self) -> None:
        """Rest after the loss of a session: the cluster's state says only then who has it."""
        session_id = self.session_id()
        if session_id:
            self._own.add(session_id)
        elif self._was_in_session:
            self._rests_until_ms = self._clock() + NODE_ID_LOST_MS
        self._was_in_session = bool(session_id)

    def _other(self) -> bool:
        """Return whether another broker has a session under this node id, and note that."""
        found = self._cluster.view.brokers.get(self._node_id)
        if (
            found is None
            or not found.is_live
            or not self.urls
            or found.session_id in self._own
            or found.endpoints.pulsar_url == self.urls
        ):
            return False
        self._faults.note(
            PluginFault.NODE_ID_TAKEN,
            f"the broker at {found.endpoints.pulsar_url} has a session as {self._node_id}: give "
            "each broker a node id of its own",
        )
        return True
