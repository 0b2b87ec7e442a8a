"""A source's end of one stream: what another broker's shadows follow here, and what they are sent.

    take(request) ─▶ source is opened ─▶ its changes mark it ─▶ ready ─▶ updates()

Nothing is queued: an update is made when the stream has room for it, from what the topic's ledger
has by then. So a slow stream gets fewer and larger steps, and then positions without entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from brokers.domain.position import BEFORE_ALL, Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.topic_facts import source_facts
from brokers.ports.ledger import Entry, TopicLedger
from brokers.ports.source_feed import SourceAway, SourceChange, SourceState
from brokers.ports.source_stream import (
    FeedCredit,
    FollowSource,
    ShadowReport,
    SourceChanged,
    SourceFed,
    SourceLeft,
    SourceRequest,
    SourceUpdate,
    UnfollowSource,
)
from brokers.service.shadows.followers import ShadowFeed
from brokers.service.topics.open_topics import Topics
from brokers.service.topics.topic import Topic
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.shadow import (
    FED_BYTES_MAX,
    FED_ENTRIES_MAX,
    FED_ENTRY_BYTES_MAX,
    FEED_CREDIT_BYTES,
    FEED_SOURCES_MAX,
    SHADOWS_PER_TOPIC_MAX,
)
from nextgen.kernel.routing.names import Domain, InvalidName, TopicName, parse_topic
from nextgen.tasks.background import start

_ABSENT = frozenset({ServerError.TOPIC_NOT_FOUND, ServerError.INVALID_TOPIC_NAME})

_UPDATES_AT_A_TIME = 100
"""Sources whose changes are made before the stream's writer is asked for room again."""


class SourceSession:
    """The sources that one broker follows by one stream. ``close`` it when the stream ends."""

    def __init__(self, topics: Topics, broker_id: str) -> None:
        self.broker_id = broker_id
        self._topics = topics
        self._feeds: dict[int, _Feed] = {}
        self._marked: dict[int, None] = {}
        self._ready = asyncio.Event()
        self._credit = 0
        self._openings: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<SourceSession of {self.broker_id} sources={len(self._feeds)}>"

    def __len__(self) -> int:
        """Return the number of sources that are followed."""
        return len(self._feeds)

    def take(self, request: SourceRequest) -> None:
        """Carry out a request of the broker with the shadows.

        Raises:
            InvalidRequest: No such broker would send it; the stream is to be ended.
        """
        match request:
            case FollowSource():
                self._follow(request)
            case UnfollowSource():
                self._unfollow(request)
            case ShadowReport():
                feed = self._feeds.get(request.feed_id)
                if feed is not None:
                    feed.report(request.shadow, request.acknowledged)
            case FeedCredit():
                # A broker of another release may have another limit.
                self._credit = min(self._credit + request.size_bytes, FEED_CREDIT_BYTES)

    async def ready(self) -> None:
        """Return when ``updates`` has something to send, or after ``wake``."""
        await self._ready.wait()

    def wake(self) -> None:
        """Have ``ready`` return, once."""
        self._ready.set()

    def updates(self) -> list[SourceUpdate]:
        """Return what is to be sent now, in order; the rest is returned by later calls."""
        found: list[SourceUpdate] = []
        entries = 0
        for feed_id in list(islice(self._marked, _UPDATES_AT_A_TIME)):
            del self._marked[feed_id]
            feed = self._feeds.get(feed_id)
            if feed is None:
                continue
            for update in feed.updates(self._credit):
                found.append(update)
                if isinstance(update, SourceChanged):
                    entries += len(update.change.entries)
                    self._credit -= sum(len(each.payload) for each in update.change.entries)
            if feed.is_over:
                self._drop(feed)
            if entries >= FED_ENTRIES_MAX:
                break
        if not self._marked:
            self._ready.clear()
        return found

    def close(self) -> None:
        """Let go of all sources."""
        for opening in self._openings:
            opening.cancel()
        for feed in list(self._feeds.values()):
            self._drop(feed)

    def _follow(self, request: FollowSource) -> None:
        source, shadow = _parsed(request)
        feed = self._feeds.get(request.feed_id)
        if feed is None:
            if len(self._feeds) >= FEED_SOURCES_MAX:
                raise InvalidRequest(f"more than {FEED_SOURCES_MAX} sources by one stream")
            feed = _Feed(request.feed_id, source, self.broker_id, self._mark)
            self._feeds[request.feed_id] = feed
            feed.follow(shadow)
            start(
                "source_opening",
                self._open(feed),
                self._openings,
                # The source is looked for again, and not waited for for ever.
                on_failure=lambda error: feed.end(SourceAway.MOVED, repr(error)),
            )
        elif feed.source != source:
            raise InvalidRequest(f"feed {feed.feed_id} is of {feed.source.text}")
        else:
            feed.follow(shadow)
            self._mark(feed.feed_id)

    def _unfollow(self, request: UnfollowSource) -> None:
        feed = self._feeds.get(request.feed_id)
        if feed is not None:
            feed.unfollow(request.shadow)
            if not feed.shadows:
                self._drop(feed)

    async def _open(self, feed: _Feed) -> None:
        try:
            topic = await self._topics.open(feed.source, create=False)
        except Refusal as refusal:
            reason = SourceAway.ABSENT if refusal.code in _ABSENT else SourceAway.MOVED
            feed.end(reason, refusal.message)
            return
        if self._feeds.get(feed.feed_id) is feed:
            feed.opened(topic)

    def _mark(self, feed_id: int) -> None:
        self._marked[feed_id] = None
        self._ready.set()

    def _drop(self, feed: _Feed) -> None:
        self._feeds.pop(feed.feed_id, None)
        feed.close()


@dataclass(frozen=True, slots=True)
class _Beginning:
    """When a shadow began to be fed, and what its feed had sent by then."""

    at_ms: int
    entries_out: int
    bytes_out: int


class _Feed:
    """One source that is followed by one stream. It is a follower of the open topic."""

    def __init__(
        self, feed_id: int, source: TopicName, broker_id: str, mark: Callable[[int], None]
    ) -> None:
        self.feed_id = feed_id
        self.source = source
        self.is_over = False
        """Whether the last of ``updates`` was its last."""
        self.shadows: dict[str, str] = {}
        """The followed ones: full name to name without a partition."""
        self._broker_id = broker_id
        self._mark = mark
        self._topic: Topic | None = None
        self._end: tuple[SourceAway, str] | None = None
        self._fed: dict[str, _Beginning] = {}
        self._refused: set[str] = set()
        """Shadows that the source does not list, and to which ``SourceLeft`` said so."""
        self._sorted_by: tuple[str, ...] | None = None
        """The list by which each shadow is either fed or refused; None: one may be neither."""
        self._entries_out = 0
        self._bytes_out = 0
        self._last = BEFORE_ALL
        self._first_ledger_id = -1
        self._facts_version = -1

    @property
    def feeds(self) -> Sequence[ShadowFeed]:
        return [
            ShadowFeed(
                shadow=self.shadows[name],
                broker_id=self._broker_id,
                connected_since_ms=begun.at_ms,
                entries_out=self._entries_out - begun.entries_out,
                bytes_out=self._bytes_out - begun.bytes_out,
            )
            for name, begun in self._fed.items()
        ]

    def follow(self, shadow: TopicName) -> None:
        """Feed a shadow, or send it the state again."""
        if shadow.text not in self.shadows and len(self.shadows) >= SHADOWS_PER_TOPIC_MAX:
            raise InvalidRequest(f"more than {SHADOWS_PER_TOPIC_MAX} shadows of a topic")
        self.unfollow(shadow.text)
        self.shadows[shadow.text] = shadow.base_text
        self._sorted_by = None

    def unfollow(self, shadow: str) -> None:
        """Feed a shadow no more; "": all of them."""
        for name in [shadow] if shadow else list(self.shadows):
            self.shadows.pop(name, None)
            self._fed.pop(name, None)
            self._refused.discard(name)

    def report(self, shadow: str, acknowledged: Position | None) -> None:
        """Note what a shadow has acknowledged. One that is not fed has no say."""
        if self._topic is not None and shadow in self._fed:
            self._topic.shadows.report(self.shadows[shadow], acknowledged)

    def opened(self, topic: Topic) -> None:
        """Feed from this topic, from now on."""
        if topic.is_usable:
            self._topic = topic
            topic.followers.add(self)
            self.changed()
        else:
            self.end(SourceAway.MOVED, f"{self.source.text} is being closed here")

    def changed(self) -> None:
        self._mark(self.feed_id)

    def ended(self) -> None:
        self.end(SourceAway.MOVED, f"{self.source.text} was closed here")

    def end(self, reason: SourceAway, message: str) -> None:
        """End it when what is acknowledged has been sent."""
        self._end = self._end or (reason, message)
        self.changed()

    def close(self) -> None:
        """Let go of the topic."""
        if self._topic is not None:
            self._topic.followers.remove(self)
            self._topic = None

    def updates(self, credit: int) -> Iterator[SourceUpdate]:
        """Yield what is to be sent now, with at most ``credit`` bytes of entries."""
        if self._topic is not None:
            shadow_topics = self._topic.policy.shadow_topics
            if self._sorted_by is shadow_topics:
                yield from self._changes(self._topic, credit)
            else:
                self._sorted_by = shadow_topics
                listed = frozenset(shadow_topics)
                yield from self._refusals(listed)
                yield from self._changes(self._topic, credit)
                yield from self._states(self._topic, listed)
        if self._end is not None:
            self.is_over = True
            yield SourceLeft(self.feed_id, (), *self._end)

    def _refusals(self, listed: frozenset[str]) -> Iterator[SourceUpdate]:
        """Tell shadows that they are not in the list, or not any more."""
        unlisted = [
            name
            for name, base in self.shadows.items()
            if base not in listed and name not in self._refused
        ]
        if unlisted:
            for name in unlisted:
                self._fed.pop(name, None)
            self._refused.update(unlisted)
            message = f"{self.source.text} does not have the shadow in its list"
            yield SourceLeft(self.feed_id, unlisted, SourceAway.UNLISTED, message)

    def _changes(self, topic: Topic, credit: int) -> Iterator[SourceUpdate]:
        if not self._fed:
            return
        ledger, before = topic.ledger, self._last
        last, first, version = ledger.last, ledger.first.ledger_id, topic.followers.facts_version
        has_facts = version != self._facts_version
        if last == before and first == self._first_ledger_id and not has_facts:
            return
        has_grown = last != before
        entries = _recent(ledger, before, credit) if has_grown else ()
        change = SourceChange(
            first_ledger_id=first,
            extents=ledger.extents_from(before.ledger_id) if has_grown else (),
            entries=entries,
            facts=source_facts(ledger.state) if has_facts else None,
        )
        self._is_at(last, first, version)
        self._entries_out += len(entries)
        self._bytes_out += sum(len(entry.payload) for entry in entries)
        yield SourceChanged(self.feed_id, change)

    def _states(self, topic: Topic, listed: frozenset[str]) -> Iterator[SourceUpdate]:
        """Begin to feed the listed shadows that are not fed yet."""
        new = [
            name for name, base in self.shadows.items() if base in listed and name not in self._fed
        ]
        if not new:
            return
        ledger, now_ms = topic.ledger, topic.now_ms()
        for name in new:
            self._refused.discard(name)
            self._fed[name] = _Beginning(now_ms, self._entries_out, self._bytes_out)
        self._is_at(ledger.last, ledger.first.ledger_id, topic.followers.facts_version)
        state = SourceState(
            topic_id=topic.unit.topic_id,
            unit=topic.unit.unit,
            epoch=topic.unit.epoch,
            extents=ledger.extents,
            facts=source_facts(ledger.state),
        )
        yield SourceFed(self.feed_id, new, state)

    def _is_at(self, last: Position, first_ledger_id: int, facts_version: int) -> None:
        self._last, self._first_ledger_id = last, first_ledger_id
        self._facts_version = facts_version


def _parsed(request: FollowSource) -> tuple[TopicName, TopicName]:
    try:
        source, shadow = parse_topic(request.source), parse_topic(request.shadow)
    except InvalidName as error:
        raise InvalidRequest(str(error)) from error
    if source.domain is not Domain.PERSISTENT or shadow.domain is not Domain.PERSISTENT:
        raise InvalidRequest("sources and shadows are persistent topics")
    if source.partition != shadow.partition:
        raise InvalidRequest(f"{shadow.text} cannot follow {source.text}: another partition")
    return source, shadow


def _recent(ledger: TopicLedger, after: Position, credit: int) -> Sequence[Entry]:
    """Return the newest entries behind ``after`` up to the last one, as far as they may be sent."""
    bytes_max = min(credit, FED_BYTES_MAX)
    if bytes_max <= 0:
        return ()
    found = ledger.read_recent(after, entries_max=FED_ENTRIES_MAX, bytes_max=bytes_max)
    if not found or found[-1].position != ledger.last:
        return ()
    begin = 0
    for number, entry in enumerate(found, start=1):
        if len(entry.payload) > FED_ENTRY_BYTES_MAX:
            begin = number
    # The first entry is returned whatever its size.
    return found[begin:] if sum(len(each.payload) for each in found[begin:]) <= bytes_max else ()
