"""Commands 70 to 82 of one connection: passes each to the session that serves it, or refuses it."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.pulsar.scalable_topics.consumer_session import (
    CONSUMER_COMMANDS,
    ConsumerClient,
    ConsumerSession,
    ConsumerSessions,
)
from nextgen.pulsar.scalable_topics.layout_session import (
    LAYOUT_WATCH_COMMANDS,
    LayoutSession,
    LayoutWatches,
)
from nextgen.pulsar.scalable_topics.namespace_session import (
    NAMESPACE_WATCH_COMMANDS,
    NamespaceSession,
    NamespaceWatches,
)
from nextgen.pulsar.scalable_topics.refusals import SCALABLE_TOPICS, no_scalable_topics
from protos.pulsar.PulsarApi_pb2 import BaseCommand

__all__ = ["SCALABLE_TOPICS", "ScalableServices", "ScalableSession"]


@dataclass(frozen=True, slots=True)
class ScalableServices:
    """What the sessions of one process share, by subject."""

    layouts: LayoutWatches
    consumers: ConsumerSessions | None = None
    """None: consumers cannot be registered at this node."""
    namespaces: NamespaceWatches | None = None
    """None: namespaces cannot be watched at this node."""

    def counts(self) -> dict[str, int]:
        """Return the counters by name."""
        return {name: count for each in self._all() for name, count in each.counts().items()}

    def gauges(self) -> dict[str, int]:
        """Return the gauges by name."""
        return {name: value for each in self._all() for name, value in each.gauges().items()}

    def _all(self) -> list[LayoutWatches | ConsumerSessions | NamespaceWatches]:
        optional = (self.consumers, self.namespaces)
        return [self.layouts, *(each for each in optional if each is not None)]


class ScalableSession:
    """The scalable topics of one connection. ``close`` it with the connection."""

    __slots__ = ("_client", "_consumers", "_layouts", "_namespaces", "_services")

    def __init__(self, client: ConsumerClient, services: ScalableServices) -> None:
        self._client = client
        self._services = services
        self._layouts: LayoutSession | None = None
        self._consumers: ConsumerSession | None = None
        self._namespaces: NamespaceSession | None = None

    def handle(self, command: BaseCommand) -> None:
        """Carry out one of ``SCALABLE_TOPICS``."""
        if command.type in LAYOUT_WATCH_COMMANDS:
            if self._layouts is None:
                self._layouts = LayoutSession(self._client, self._services.layouts)
            self._layouts.handle(command)
            return
        shared = self._services.consumers
        if command.type in CONSUMER_COMMANDS and shared is not None:
            if self._consumers is None:
                self._consumers = ConsumerSession(self._client, shared)
            self._consumers.handle(command)
            return
        watches = self._services.namespaces
        if command.type in NAMESPACE_WATCH_COMMANDS and watches is not None:
            if self._namespaces is None:
                self._namespaces = NamespaceSession(self._client, watches)
            self._namespaces.handle(command)
            return
        refusal = no_scalable_topics(command)
        if refusal is not None:
            self._client.send_command(refusal)

    def close(self) -> None:
        """End everything, without a word to the client."""
        if self._layouts is not None:
            self._layouts.close()
        if self._consumers is not None:
            self._consumers.close()
        if self._namespaces is not None:
            self._namespaces.close()
