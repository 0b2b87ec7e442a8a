"""A broker's shadows and the sources that they follow: finds each source's owner, again and again.

    locate ─▶ stream to its broker ─▶ fed ─▶ moved, lost ─▶ pause ─▶ locate ─▶ ...
       ╰──────────────── absent, not reached ────────────────▶╯

Shadows of one source share what is sent for it, and sources of one broker share its stream.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Protocol

import structlog

from brokers.domain.position import Position
from brokers.ports.source_feed import SourceAway, SourceFeeds, SourceFollow, SourceListener
from brokers.ports.source_stream import (
    FollowSource,
    ShadowReport,
    SourceChanged,
    SourceDialer,
    SourceFed,
    SourceLeft,
    UnfollowSource,
)
from brokers.service.feeds.shared_stream import SharedStream
from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.limits.shadow import (
    FEED_ABSENT_MS_MAX,
    FEED_LOCATE_MS_MAX,
    FEED_LOCATE_MS_MIN,
    FEED_LOCATES_AT_A_TIME,
    FEED_REPORT_MS,
    FEED_SETTLED_MS,
    FEED_SOURCES_MAX,
    SHADOWS_PER_TOPIC_MAX,
)
from nextgen.kernel.routing.names import TopicName
from nextgen.pulsar.metadata_commands import Located
from nextgen.tasks.background import cancel_and_wait, keep

_UNKNOWN = object()

_logger = structlog.get_logger(__name__)


class Owners(Protocol):
    """Finds the owners of sources; ``TopicDirectory`` does."""

    async def locate(self, name: TopicName, *, create: bool) -> Located: ...


class OwnersSourceFeeds(SourceFeeds):
    """The sources of one broker's shadows, fed by their owners. ``close`` it at the end.

    ``sleep`` waits for seconds.
    """

    def __init__(
        self,
        owners: Owners,
        dial: SourceDialer,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._owners = owners
        self._dial = dial
        self._sleep = sleep
        self._sources: dict[str, _Source] = {}
        self._streams: dict[tuple[str, str], SharedStream] = {}
        self._locating = asyncio.Semaphore(FEED_LOCATES_AT_A_TIME)
        self._reports: dict[_Follow, None] = {}

    def __repr__(self) -> str:
        return f"<OwnersSourceFeeds sources={len(self._sources)} streams={len(self._streams)}>"

    @property
    def source_count(self) -> int:
        return len(self._sources)

    @property
    def stream_count(self) -> int:
        return len(self._streams)

    def follow(self, source: TopicName, shadow: TopicName, listener: SourceListener) -> _Follow:
        assert source.partition == shadow.partition, "partitions follow their own"
        found = self._sources.get(source.text)
        if found is None:
            found = self._sources[source.text] = _Source(source)
            found.attending = keep("source_feed", lambda: self._attend(found))
        follow = _Follow(self, found, shadow.text, listener)
        found.add(follow)
        return follow

    def sessions_changed(self, has_ended: Callable[[str, str], bool]) -> None:
        """Leave brokers whose sessions have ended: ``has_ended(broker_id, session_id)``."""
        for (broker_id, session_id), stream in list(self._streams.items()):
            if has_ended(broker_id, session_id):
                stream.end(SourceAway.LOST, f"the session of broker {broker_id} has ended")

    async def close(self) -> None:
        """End all follows and streams."""
        attending = [each.attending for each in self._sources.values() if each.attending]
        self._sources.clear()
        await cancel_and_wait(*attending)
        await asyncio.gather(*(stream.close() for stream in self._streams.values()))
        self._streams.clear()

    def left(self, follow: _Follow) -> None:
        """A shadow follows its source no more."""
        source = follow.source
        self._reports.pop(follow, None)
        source.remove(follow)
        if not source.follows and self._sources.get(source.name.text) is source:
            del self._sources[source.name.text]
            if source.attending is not None:
                source.attending.cancel()

    def reported(self, follow: _Follow) -> None:
        """A shadow has another position: send it, together with others, soon."""
        if not self._reports:
            loop = asyncio.get_running_loop()
            loop.call_later(FEED_REPORT_MS / 1_000, self._send_reports)
        self._reports[follow] = None

    def _send_reports(self) -> None:
        reports, self._reports = self._reports, {}
        for follow in reports:
            follow.send_report()

    async def _attend(self, source: _Source) -> None:
        """Keep a source fed for as long as a shadow follows it."""
        pause_ms = 0.0
        while True:
            reason, message, fed_ms = await self._feed(source)
            source.went_away(reason, message)
            pause_max = FEED_ABSENT_MS_MAX if reason is SourceAway.ABSENT else FEED_LOCATE_MS_MAX
            if fed_ms >= FEED_SETTLED_MS:
                pause_ms = 0.0
            await self._sleep(pause_ms * random.uniform(0.5, 1.0) / 1_000)
            pause_ms = min(max(2 * pause_ms, FEED_LOCATE_MS_MIN), pause_max)

    async def _feed(self, source: _Source) -> tuple[SourceAway, str, float]:
        """Feed a source until its owner leaves it; return why, and for how long it was fed."""
        try:
            async with self._locating:
                located = await self._owners.locate(source.name, create=False)
        except Refused as refusal:
            return SourceAway.ABSENT, str(refusal), 0
        except MetadataError as error:
            return SourceAway.LOST, str(error), 0
        source.located(located.topic_id, located.unit)
        stream = self._stream(located.broker_id, located.session_id)
        if stream.is_full:
            return SourceAway.LOST, f"{FEED_SOURCES_MAX} sources are followed there already", 0
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        source.attach(stream, loop.create_future())
        try:
            reason, message = await source.over
        finally:
            source.detach()
            self._drop_unused(stream)
        if not source.was_fed:
            return reason, message, 0
        facts = {"source": source.name.text, "broker": located.broker_id, "why": message}
        _logger.info("source left", reason=reason.value, **facts)
        return reason, message, (loop.time() - began_at) * 1_000

    def _stream(self, broker_id: str, session_id: str) -> SharedStream:
        key = (broker_id, session_id)
        stream = self._streams.get(key)
        if stream is None or stream.is_over:
            stream = self._streams[key] = SharedStream(self._dial(broker_id, session_id))
        return stream

    def _drop_unused(self, stream: SharedStream) -> None:
        """End a stream by which nothing is followed any more."""
        if stream.is_used:
            return
        for key, each in list(self._streams.items()):
            if each is stream:
                del self._streams[key]
        stream.end(SourceAway.LOST, "nothing is followed by it")


class _Source:
    """One source, and the shadows of this broker that follow it."""

    def __init__(self, name: TopicName) -> None:
        self.name = name
        self.follows: dict[_Follow, None] = {}
        self.attending: asyncio.Task[None] | None = None
        self.over: asyncio.Future[tuple[SourceAway, str]]
        self.was_fed = False
        """Whether the present or last owner has fed it."""
        self._ids: tuple[str, str] | None = None
        self._epoch = 0
        self._stream: SharedStream | None = None
        self._feed_id = 0

    def add(self, follow: _Follow) -> None:
        self.follows[follow] = None
        if self._ids is not None:
            # Never from inside the caller's ``follow``.
            asyncio.get_running_loop().call_soon(follow.located, *self._ids)
        # A source lists no more, so the others are not fed anyway.
        if self._stream is not None and len(self._shadows) <= SHADOWS_PER_TOPIC_MAX:
            self._stream.send(FollowSource(self._feed_id, self.name.text, follow.shadow))

    def remove(self, follow: _Follow) -> None:
        if self.follows.pop(follow, _UNKNOWN) is _UNKNOWN or self._stream is None:
            return
        if all(each.shadow != follow.shadow for each in self.follows):
            self._stream.send(UnfollowSource(self._feed_id, follow.shadow))

    def located(self, topic_id: str, unit: str) -> None:
        if self._ids != (topic_id, unit):
            # Another topic of this name counts its epochs anew.
            self._ids, self._epoch = (topic_id, unit), 0
            for follow in list(self.follows):
                follow.located(topic_id, unit)

    def attach(self, stream: SharedStream, over: asyncio.Future[tuple[SourceAway, str]]) -> None:
        """Follow it by this stream. ``over`` is fulfilled when its owner leaves it."""
        self.over, self.was_fed = over, False
        self._stream, self._feed_id = stream, stream.add(self.take, self.end)
        for shadow in islice(self._shadows, SHADOWS_PER_TOPIC_MAX):
            stream.send(FollowSource(self._feed_id, self.name.text, shadow))

    def detach(self) -> None:
        if self._stream is not None:
            self._stream.remove(self._feed_id)
            self._stream = None

    def take(self, update: SourceFed | SourceChanged | SourceLeft) -> None:
        """Pass on what its owner sent."""
        match update:
            case SourceChanged():
                for follow in list(self.follows):
                    if follow.is_fed:
                        follow.listener.on_change(update.change)
            case SourceFed():
                self._fed(update)
            case SourceLeft() if not update.shadows:
                self.end(update.reason, update.message)
            case SourceLeft():
                for follow in self._named(update.shadows):
                    follow.went_away(update.reason, update.message)

    def end(self, reason: SourceAway, message: str) -> None:
        """The owner leaves it, or cannot be reached any more."""
        if not self.over.done():
            self.over.set_result((reason, message))

    def went_away(self, reason: SourceAway, message: str) -> None:
        for follow in list(self.follows):
            follow.went_away(reason, message)

    def send_report(self, shadow: str, acknowledged: Position | None) -> None:
        if self._stream is not None:
            self._stream.send(ShadowReport(self._feed_id, shadow, acknowledged))

    def _fed(self, update: SourceFed) -> None:
        state = update.state
        if (state.topic_id, state.unit) != self._ids or state.epoch < self._epoch:
            # An earlier owner, which does not know of the present one yet.
            self.end(SourceAway.LOST, f"it was owner in epoch {state.epoch}, now {self._epoch}")
            return
        self._epoch, self.was_fed = state.epoch, True
        for follow in self._named(update.shadows):
            follow.is_fed = True
            follow.listener.on_source(state)
            follow.send_report()

    @property
    def _shadows(self) -> dict[str, None]:
        return dict.fromkeys(follow.shadow for follow in self.follows)

    def _named(self, shadows: Sequence[str]) -> list[_Follow]:
        names = frozenset(shadows)
        return [follow for follow in self.follows if follow.shadow in names]


class _Follow(SourceFollow):
    """One shadow that follows a source."""

    def __init__(
        self, feeds: OwnersSourceFeeds, source: _Source, shadow: str, listener: SourceListener
    ) -> None:
        self.source = source
        self.shadow = shadow
        self.listener = listener
        self.is_fed = False
        self._feeds = feeds
        self._report: Position | object | None = _UNKNOWN

    def report(self, acknowledged: Position | None) -> None:
        if self._report is _UNKNOWN or self._report != acknowledged:
            self._report = acknowledged
            self._feeds.reported(self)

    def close(self) -> None:
        self._feeds.left(self)

    def located(self, topic_id: str, unit: str) -> None:
        if self in self.source.follows:
            self.listener.on_located(topic_id, unit)

    def went_away(self, reason: SourceAway, message: str) -> None:
        self.is_fed = False
        self.listener.on_away(reason, message)

    def send_report(self) -> None:
        if self.is_fed and (self._report is None or isinstance(self._report, Position)):
            self.source.send_report(self.shadow, self._report)
