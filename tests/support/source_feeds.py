"""Source feeds in memory: a test says what the sources do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from brokers.domain.position import Position
from brokers.ports.source_feed import (
    SourceAway,
    SourceChange,
    SourceListener,
    SourceState,
)
from nextgen.kernel.routing.names import TopicName


@dataclass
class MemoryFollow:
    """One follow, with what was reported by it."""

    source: str
    shadow: str
    listener: SourceListener
    reports: list[Position | None] = field(default_factory=list)
    is_closed: bool = False

    def report(self, acknowledged: Position | None) -> None:
        self.reports.append(acknowledged)

    def close(self) -> None:
        self.is_closed = True


class MemorySourceFeeds:
    """``SourceFeeds`` whose sources are driven by ``is_back``, ``changed`` and ``goes_away``."""

    def __init__(self) -> None:
        self.follows: list[MemoryFollow] = []

    def follow(
        self, source: TopicName, shadow: TopicName, listener: SourceListener
    ) -> MemoryFollow:
        assert source.partition == shadow.partition, "partitions follow their own"
        follow = MemoryFollow(source.text, shadow.text, listener)
        self.follows.append(follow)
        return follow

    def is_located(self, source: str, topic_id: str, unit: str = "") -> None:
        """The source's ids are known; its owner is not reached."""
        for listener in self._listeners(source):
            listener.on_located(topic_id, unit)

    def is_back(self, source: str, state: SourceState) -> None:
        """The source has an owner and says what it has."""
        for listener in self._listeners(source):
            listener.on_source(state)

    def changed(self, source: str, change: SourceChange) -> None:
        """The source's owner says what changed."""
        for listener in self._listeners(source):
            listener.on_change(change)

    def goes_away(self, source: str, reason: SourceAway, message: str = "") -> None:
        """The source cannot feed its shadows."""
        for listener in self._listeners(source):
            listener.on_away(reason, message)

    def _listeners(self, source: str) -> Sequence[SourceListener]:
        return [
            each.listener for each in self.follows if each.source == source and not each.is_closed
        ]
