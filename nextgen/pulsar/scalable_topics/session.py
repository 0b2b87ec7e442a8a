"""Commands 70 to 82 of one connection: passes each to the session that serves it, or refuses it."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.pulsar.scalable_topics.layout_session import (
    LAYOUT_WATCH_COMMANDS,
    LayoutSession,
    LayoutWatches,
)
from nextgen.pulsar.scalable_topics.refusals import SCALABLE_TOPICS, no_scalable_topics
from nextgen.pulsar.topic_lists.session import Client
from protos.pulsar.PulsarApi_pb2 import BaseCommand

__all__ = ["SCALABLE_TOPICS", "ScalableServices", "ScalableSession"]


@dataclass(frozen=True, slots=True)
class ScalableServices:
    """What the sessions of one process share, by subject."""

    layouts: LayoutWatches

    def counts(self) -> dict[str, int]:
        """Return the counters by name."""
        return self.layouts.counts()

    def gauges(self) -> dict[str, int]:
        """Return the gauges by name."""
        return self.layouts.gauges()


class ScalableSession:
    """The scalable topics of one connection. ``close`` it with the connection."""

    __slots__ = ("_client", "_layouts", "_services")

    def __init__(self, client: Client, services: ScalableServices) -> None:
        self._client = client
        self._services = services
        self._layouts: LayoutSession | None = None

    def handle(self, command: BaseCommand) -> None:
        """Carry out one of ``SCALABLE_TOPICS``."""
        if command.type in LAYOUT_WATCH_COMMANDS:
            if self._layouts is None:
                self._layouts = LayoutSession(self._client, self._services.layouts)
            self._layouts.handle(command)
            return
        refusal = no_scalable_topics(command)
        if refusal is not None:
            self._client.send_command(refusal)

    def close(self) -> None:
        """End everything, without a word to the client."""
        if self._layouts is not None:
            self._layouts.close()
