"""Pulsar addresses of the live brokers, as the cluster manager pushes them."""

from __future__ import annotations

import random
from typing import Protocol

from nextgen.client.cluster.link import ChangeListener
from nextgen.client.cluster.view import ClusterView
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

    def any(self) -> str | None:
        """See ``TopicDirectory.any_broker_url``. At random, so that brokers share the load."""
        urls = self._urls
        if urls is None:
            urls = self._urls = [
                broker.endpoints.pulsar_url
                for broker in self._cluster.view.brokers.values()
                if broker.is_live and broker.endpoints.pulsar_url
            ]
        return random.choice(urls) if urls else None

    def _on_change(self, _view: ClusterView, update: ClusterUpdate) -> None:
        if update.brokers:
            self._urls = None
