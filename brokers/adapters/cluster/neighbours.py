"""The other brokers, from the cluster state that the cluster manager pushes."""

from __future__ import annotations

from collections.abc import Callable

from nextgen.client.cluster.view import ClusterView


class ClusterNeighbours:
    """``Neighbours`` of the broker ``broker_id``. ``wall_ms`` is Unix time."""

    def __init__(self, view: ClusterView, broker_id: str, wall_ms: Callable[[], int]) -> None:
        self._view = view
        self._broker_id = broker_id
        self._wall_ms = wall_ms

    def may_take_units(self) -> bool:
        now_ms = self._wall_ms()
        own = self._view.brokers.get(self._broker_id)
        return any(
            broker.is_live and not broker.draining and broker.quarantined_until_ms <= now_ms
            for broker_id, broker in self._view.brokers.items()
            if broker_id != self._broker_id and (own is None or broker.kind == own.kind)
        )

    def is_draining(self) -> bool:
        own = self._view.brokers.get(self._broker_id)
        return own is not None and own.is_live and own.draining
