"""Pulsar addresses of the live brokers, as the cluster manager pushes them."""

from __future__ import annotations

from typing import Protocol

from nextgen.client.cluster.link import ChangeListener
from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.governance.broker_kind import BrokerKind
from nextgen.kernel.routing.hashing import hash64
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate


class Cluster(Protocol):
    """A ``ClusterLink``, as far as addresses of brokers need it."""

    @property
    def view(self) -> ClusterView: ...

    def on_change(self, listener: ChangeListener) -> None: ...


class LiveBrokerUrls:
    """Caches the list until a broker changes. Owned by one event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._urls: list[str] | None = None
        cluster.on_change(self._on_change)

    def any(self, topic: str) -> str | None:
        """See ``TopicDirectory.any_broker_url``. A hash of the name decides, so that brokers share
        the load. Processes that know the same brokers return the same one."""
        urls = self._urls
        if urls is None:
            urls = self._urls = self._usable()
        return urls[hash64(topic) % len(urls)] if urls else None

    def _usable(self) -> list[str]:
        """Return the URLs in the order of broker ids; of draining brokers only if all drain.

        Of stock brokers only if no other lives: they know neither scalable topics nor what the
        cluster says of other names.
        """
        brokers = sorted(self._cluster.view.brokers.items())
        live = [each for _, each in brokers if each.is_live and each.endpoints.pulsar_url]
        live = [each for each in live if each.kind == BrokerKind.EMBEDDED] or live
        open_ones = [each for each in live if not each.draining]
        return [each.endpoints.pulsar_url for each in open_ones or live]

    def _on_change(self, _view: ClusterView, update: ClusterUpdate) -> None:
        if update.brokers:
            self._urls = None
