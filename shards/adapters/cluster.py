"""A shard's ports to the cluster manager: the broker directory, quotas, the ledger, reports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from nextgen.client.cluster.link import ClusterLink
from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.governance.service_settings import ServiceSettings
from protos.nextgen.v1.cluster_service_pb2 import (
    BrokerLoad,
    BrokerReport,
    ClusterUpdate,
    LeaseCapacityRequest,
    LeaseCapacityResponse,
    NodeMessage,
)
from protos.nextgen.v1.events_pb2 import BrokerRecorded, LoadReport
from shards.metrics import NodeMetrics

_LEASE_TIMEOUT_MS = 3_000
"""Milliseconds. The cluster manager may need a grant of a broker manager, and commits."""


class Listeners:
    """Functions that are called one after the other, until each is unsubscribed."""

    def __init__(self) -> None:
        self._listeners: dict[int, Callable[[], None]] = {}
        self._next_key = 0

    def add(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Add ``listener``; returns a function that unsubscribes."""
        key = self._next_key
        self._next_key += 1
        self._listeners[key] = listener

        def unsubscribe() -> None:
            self._listeners.pop(key, None)

        return unsubscribe

    def notify(self) -> None:
        """Call all of them."""
        for listener in tuple(self._listeners.values()):
            listener()


class LinkDirectory:
    """``BrokerDirectory`` from the cluster manager's pushes."""

    def __init__(self, link: ClusterLink) -> None:
        self._view = link.view
        self._live: dict[str, BrokerRecorded] = {}
        self._listeners = Listeners()
        self._refresh()
        link.on_change(self._on_change)

    def live(self) -> Sequence[BrokerRecorded]:
        return tuple(self._live.values())

    def session(self, session_id: str) -> BrokerRecorded | None:
        return self._live.get(session_id)

    def broker(self, broker_id: str) -> BrokerRecorded | None:
        found = self._view.brokers.get(broker_id)
        return found if found is not None and found.is_live else None

    def known_ids(self) -> Collection[str]:
        return self._view.brokers.keys()

    def has_ended(self, broker_id: str, session_id: str) -> bool:
        return self._view.has_session_ended(broker_id, session_id)

    def load(self, session_id: str) -> LoadReport | None:
        return self._view.load(session_id)

    def settings(self) -> ServiceSettings:
        return self._view.settings

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._listeners.add(listener)

    def _on_change(self, _view: ClusterView, update: ClusterUpdate) -> None:
        if update.brokers or update.full:
            self._refresh()
        if update.brokers or update.full or update.HasField("configuration"):
            self._listeners.notify()

    def _refresh(self) -> None:
        self._live = {
            broker.session_id: broker for broker in self._view.brokers.values() if broker.is_live
        }


class LinkQuotas:
    """``Quotas`` from the cluster manager's pushes."""

    def __init__(self, link: ClusterLink) -> None:
        self._view = link.view

    def of_broker(self, broker_id: str) -> int | None:
        return self._view.broker_quotas.get(broker_id)

    def of_tenant(self, tenant: str) -> int | None:
        return self._view.tenant_quotas.get(tenant)


class LinkCapacity:
    """``CapacitySource`` over the link's leader."""

    def __init__(self, link: ClusterLink, metrics: NodeMetrics) -> None:
        self._link = link
        self._metrics = metrics

    async def lease_capacity(self, request: LeaseCapacityRequest) -> LeaseCapacityResponse:
        metrics = self._metrics
        (metrics.lease_growths if request.units_wanted else metrics.lease_renewals).inc()
        return await self._link.lease_capacity(request, _LEASE_TIMEOUT_MS)


class LinkReports:
    """``SessionReports`` over the link. Without a connection a report is lost: the caller repeats
    it ``on_reconnect``."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link
        self._listeners = Listeners()
        link.on_connected(self._listeners.notify)

    def report(self, session: BrokerRecorded) -> None:
        self._link.send(NodeMessage(broker=BrokerReport(broker=session)))

    def report_load(self, broker_id: str, session_id: str, load: LoadReport) -> None:
        carried = BrokerLoad(broker_id=broker_id, session_id=session_id, load=load)
        self._link.send(NodeMessage(load=carried))

    def on_reconnect(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._listeners.add(listener)
