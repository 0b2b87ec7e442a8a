"""A feed without a network: the test is the source's owner, and says what its ledger has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Any

from brokers.domain.position import Position
from brokers.domain.topic_facts import source_facts
from brokers.ports.ledger import Entry, TopicLedger
from brokers.ports.source_feed import (
    SourceAway,
    SourceChange,
    SourceFeeds,
    SourceFollow,
    SourceListener,
    SourceState,
)
from nextgen.kernel.routing.names import TopicName


class FakeFollow(SourceFollow):
    """One shadow's subscription."""

    def __init__(self, listener: SourceListener) -> None:
        self.listener = listener
        self.reported: list[Position | None] = []
        self.is_closed = False

    def report(self, acknowledged: Position | None) -> None:
        self.reported.append(acknowledged)

    def close(self) -> None:
        self.is_closed = True


class FakeFeeds(SourceFeeds):
    """What a source sends to all its shadows. Without a ledger the source is ``away``."""

    def __init__(self, topic_id: str, ledger: TopicLedger | None = None) -> None:
        self.topic_id = topic_id
        self.ledger = ledger
        self.away: SourceAway | None = None
        """The reason that a new follower gets in ``on_away``, if the source has no ledger."""
        self.locates = True
        self.follows: list[FakeFollow] = []
        self.followed: list[tuple[str, str]] = []
        self._sent = 0

    def follow(self, source: TopicName, shadow: TopicName, listener: SourceListener) -> FakeFollow:
        follow = FakeFollow(listener)
        self.follows.append(follow)
        self.followed.append((source.text, shadow.text))
        asyncio.get_running_loop().call_soon(self._begin, follow)
        return follow

    def state(self) -> SourceState:
        """Return the source as its owner has it."""
        assert self.ledger is not None
        self._sent = self.ledger.extents[-1].ledger_id if self.ledger.extents else 0
        facts = source_facts(self.ledger.state)
        return SourceState(self.topic_id, "", self.ledger.epoch, self.ledger.extents, facts)

    def change(self, entries: Sequence[Entry] = (), *, has_facts: bool = False) -> SourceChange:
        """Return what is new at the source since the last state or change."""
        assert self.ledger is not None
        extents = self.ledger.extents_from(self._sent)
        self._sent = extents[-1].ledger_id if extents else self._sent
        first = self.ledger.first.ledger_id
        facts = source_facts(self.ledger.state) if has_facts else None
        return SourceChange(first, extents, entries, facts)

    def send(self, entries: Sequence[Entry] = (), *, has_facts: bool = False) -> None:
        """Send what is new, with these entries, to every shadow."""
        change = self.change(entries, has_facts=has_facts)
        for follow in self._open():
            follow.listener.on_change(change)

    def return_with(self, ledger: TopicLedger) -> None:
        """Let the source come back, at this owner."""
        self.ledger = ledger
        for follow in self._open():
            follow.listener.on_source(self.state())

    def go_away(self, reason: SourceAway = SourceAway.LOST) -> None:
        self.ledger = None
        for follow in self._open():
            follow.listener.on_away(reason, "")

    def _begin(self, follow: FakeFollow) -> None:
        if follow.is_closed:
            return
        if self.locates:
            follow.listener.on_located(self.topic_id, "")
        if self.ledger is not None:
            follow.listener.on_source(self.state())
        elif self.away is not None:
            follow.listener.on_away(self.away, "")

    def _open(self) -> list[FakeFollow]:
        return [each for each in self.follows if not each.is_closed]


class InlinePool(Executor):
    """A pool of threads that has none: what is submitted is done at once."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future
