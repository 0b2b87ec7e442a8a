"""How a shadow topic is fed: with the state of its source, and with the source's newest entries.

The source's owner sends only what its ledger acknowledged: fsynced, and then not fenced. Older
entries are read from the source's files, in the extents that the feed announced.

    follow ─▶ on_located ─▶ on_source ─▶ on_change ... ─▶ on_away ─▶ on_source ─▶ ...
         ╰──▶ on_away
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from brokers.domain.position import Position
from brokers.ports.ledger import Entry, Extent
from nextgen.kernel.routing.names import TopicName


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source as its owner of one epoch has it. It replaces everything known before."""

    topic_id: str
    unit: str
    epoch: int
    """Never lower than that of an earlier state of the same topic id."""
    extents: Sequence[Extent]
    """All kept ledgers, ascending, as far as they are acknowledged."""
    facts: Mapping[str, bytes]
    """From the source's ledger: the versions of its schema, their deletion, its termination."""


@dataclass(frozen=True, slots=True)
class SourceChange:
    """What changed at a source since the state, or change, before."""

    first_ledger_id: int
    """The lowest kept ledger: those below were trimmed."""
    extents: Sequence[Extent] = ()
    """Those that grew or began, ascending, as they are now."""
    entries: Sequence[Entry] = ()
    """The newest of the new entries, without a gap, up to the end of the last extent. Fewer than
    are new, or none, if one is large or the feed is behind: the others are in the files."""
    facts: Mapping[str, bytes] | None = None
    """All facts, if one of them changed."""


class SourceAway(StrEnum):
    """Why a source does not feed a shadow at present."""

    MOVED = "moved"
    """Its owner released it, or is not its owner. The next owner is looked for."""
    LOST = "lost"
    """Its owner cannot be reached. It, or the next one, is looked for."""
    UNLISTED = "unlisted"
    """It does not have the shadow in its list. It feeds the shadow once it is listed."""
    ABSENT = "absent"
    """There is no such topic. It is looked for, with pauses."""


class SourceListener(Protocol):
    """A shadow's end of a feed. No method waits or raises."""

    def on_located(self, topic_id: str, unit: str) -> None:
        """Take the source's ids, before its owner is reached. Called when they are known anew."""
        ...

    def on_source(self, state: SourceState) -> None:
        """Take the state of a source that was away, or that has another owner."""
        ...

    def on_change(self, change: SourceChange) -> None:
        """Take a change. Changes arrive in order, and none is missing since ``on_source``."""
        ...

    def on_away(self, reason: SourceAway, message: str) -> None:
        """Note that nothing arrives until the next ``on_source``. May be called repeatedly."""
        ...


class SourceFollow(Protocol):
    """One shadow's subscription to its source. It lasts until ``close``, whatever happens."""

    def report(self, acknowledged: Position | None) -> None:
        """Report up to where all durable subscriptions have acknowledged; None: there is none.

        The source keeps what is behind it if its policy says so. Only the latest report counts.
        """
        ...

    def close(self) -> None:
        """End it: the listener is not called any more. May be repeated."""
        ...


class SourceFeeds(Protocol):
    """All subscriptions of one broker's shadows."""

    def follow(
        self, source: TopicName, shadow: TopicName, listener: SourceListener
    ) -> SourceFollow:
        """Follow a source, partition by partition: both names have the same partition, or none.

        The listener is called later, never in this call.
        """
        ...
