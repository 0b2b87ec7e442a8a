"""One stream to a broker with sources, shared by all sources that are followed there."""

from __future__ import annotations

from collections.abc import Callable

from brokers.ports.source_feed import SourceAway
from brokers.ports.source_stream import (
    FeedCredit,
    SourceChanged,
    SourceRequest,
    SourceStream,
    SourceUpdate,
    UnfollowSource,
)
from nextgen.kernel.errors import ConnectionLost, MetadataError
from nextgen.kernel.limits.shadow import FEED_CREDIT_BYTES, FEED_SOURCES_MAX
from nextgen.tasks.background import cancel_and_wait, start

_RETURNED_BYTES = FEED_CREDIT_BYTES // 4
"""Taken payload after which credit is given again."""

Take = Callable[[SourceUpdate], None]
End = Callable[[SourceAway, str], None]


class SharedStream:
    """Runs a stream until it breaks or ``end`` is called. Each of its sources has a number."""

    def __init__(self, stream: SourceStream) -> None:
        self.is_over = False
        self._stream = stream
        self._sources: dict[int, tuple[Take, End]] = {}
        self._next_id = 1
        self._taken_bytes = 0
        stream.send(FeedCredit(FEED_CREDIT_BYTES))
        self._running = start(
            "source_stream", self._run(), on_failure=self._broke, expected=MetadataError
        )

    @property
    def is_full(self) -> bool:
        """Whether it takes no further source."""
        return len(self._sources) >= FEED_SOURCES_MAX

    @property
    def is_used(self) -> bool:
        """Whether a source is followed by it."""
        return bool(self._sources)

    def send(self, request: SourceRequest) -> None:
        """See ``SourceStream.send``."""
        if not self.is_over:
            self._stream.send(request)

    def add(self, take: Take, end: End) -> int:
        """Add a source; return its number. ``end`` is called at most once, when the stream ends."""
        assert not self.is_over, "an ended stream carries nothing"
        feed_id, self._next_id = self._next_id, self._next_id + 1
        self._sources[feed_id] = take, end
        return feed_id

    def remove(self, feed_id: int) -> None:
        """Follow a source no more. May be repeated."""
        if self._sources.pop(feed_id, None) is not None:
            # Also if its owner left it: a request may be on its way that would begin it anew.
            self.send(UnfollowSource(feed_id))

    def end(self, reason: SourceAway, message: str) -> None:
        """End it now, and all that is followed by it."""
        if self.is_over:
            return
        self.is_over = True
        self._running.cancel()
        sources, self._sources = self._sources, {}
        for _, end in sources.values():
            end(reason, message)

    async def close(self) -> None:
        """End it, and return when nothing of it runs any more."""
        self.end(SourceAway.LOST, "this broker stops")
        await cancel_and_wait(self._running)

    async def _run(self) -> None:
        await self._stream.run(self._take)
        raise ConnectionLost("the stream has ended")

    def _broke(self, error: BaseException) -> None:
        self.end(SourceAway.LOST, str(error))

    def _take(self, update: SourceUpdate) -> None:
        source = self._sources.get(update.feed_id)
        if source is not None:
            source[0](update)
        if isinstance(update, SourceChanged) and update.change.entries:
            self._taken_bytes += sum(len(entry.payload) for entry in update.change.entries)
            if self._taken_bytes >= _RETURNED_BYTES:
                self.send(FeedCredit(self._taken_bytes))
                self._taken_bytes = 0
