"""A stream between a broker with shadows and a broker with their sources: see ``source_feed``.

The broker with shadows numbers the sources that it follows. Numbers are not used again.

    FollowSource ─▶ SourceFed ─▶ SourceChanged ... ─▶ SourceLeft
    UnfollowSource, ShadowReport, FeedCredit
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from brokers.domain.position import Position
from brokers.ports.source_feed import SourceAway, SourceChange, SourceState


@dataclass(frozen=True, slots=True)
class FollowSource:
    """Feed one more shadow of a source. For a shadow that is fed already: send the state again."""

    feed_id: int
    source: str
    """Canonical names, partitions included."""
    shadow: str


@dataclass(frozen=True, slots=True)
class UnfollowSource:
    """Feed a shadow no more; "": all shadows of the source."""

    feed_id: int
    shadow: str = ""


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """Up to where a shadow that is fed has acknowledged; None: it has no durable subscription."""

    feed_id: int
    shadow: str
    acknowledged: Position | None


@dataclass(frozen=True, slots=True)
class FeedCredit:
    """This much more payload may be sent."""

    size_bytes: int


SourceRequest = FollowSource | UnfollowSource | ShadowReport | FeedCredit


@dataclass(frozen=True, slots=True)
class SourceFed:
    """These shadows are fed from this state on. Others of the source are where they are."""

    feed_id: int
    shadows: Sequence[str]
    state: SourceState


@dataclass(frozen=True, slots=True)
class SourceChanged:
    """What changed, for all shadows of the source that are fed."""

    feed_id: int
    change: SourceChange


@dataclass(frozen=True, slots=True)
class SourceLeft:
    """These shadows are not fed any more, or not yet; none named: the source is over here."""

    feed_id: int
    shadows: Sequence[str]
    reason: SourceAway
    message: str


SourceUpdate = SourceFed | SourceChanged | SourceLeft


class SourceStream(Protocol):
    """One stream, at the end of the broker with shadows."""

    def send(self, request: SourceRequest) -> None:
        """Send soon, in order, also before the stream is open. Never waits or raises."""
        ...

    async def run(self, take: Callable[[SourceUpdate], None]) -> None:
        """Open the stream and pass on its updates until it ends; its end is an error.

        Raises:
            MetadataError: It could not be opened, or it ended, or carried nonsense.
        """
        ...


SourceDialer = Callable[[str, str], SourceStream]
"""Makes a stream to the broker of an id, in a session. It may not exist: ``run`` says so."""
