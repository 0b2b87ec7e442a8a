"""All streams by which one broker feeds the shadows of others, and its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from brokers.ports.source_stream import SourceRequest, SourceStream, SourceUpdate
from brokers.service.feeds.source_session import SourceSession
from brokers.service.topics.open_topics import Topics
from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.shadow import FEED_REQUESTS_PER_MESSAGE_MAX, FEED_STREAMS_MAX


class SourceSessions:
    """The streams that are open here."""

    def __init__(self, topics: Topics, *, streams_max: int = FEED_STREAMS_MAX) -> None:
        self._topics = topics
        self._streams_max = streams_max
        self._sessions: dict[SourceSession, None] = {}

    def __repr__(self) -> str:
        return f"<SourceSessions streams={self.stream_count} sources={self.source_count}>"

    @property
    def stream_count(self) -> int:
        return len(self._sessions)

    @property
    def source_count(self) -> int:
        """Number of followed sources; one that is followed by two streams counts twice."""
        return sum(map(len, self._sessions))

    @contextmanager
    def opened(self, broker_id: str) -> Iterator[SourceSession]:
        """Open a session of a broker with shadows; close it at the end.

        Raises:
            Overloaded: There are too many.
        """
        if len(self._sessions) >= self._streams_max:
            raise Overloaded(f"{len(self._sessions)} brokers are fed, no more are allowed")
        session = SourceSession(self._topics, broker_id)
        self._sessions[session] = None
        try:
            yield session
        finally:
            del self._sessions[session]
            session.close()


class LocalSourceStream(SourceStream):
    """A broker's stream to itself: a shadow and its source are served by one process."""

    def __init__(self, sessions: SourceSessions, broker_id: str) -> None:
        self._sessions = sessions
        self._broker_id = broker_id
        self._session: SourceSession | None = None
        self._requests: deque[SourceRequest] = deque()

    def send(self, request: SourceRequest) -> None:
        self._requests.append(request)
        if self._session is not None:
            self._session.wake()

    async def run(self, take: Callable[[SourceUpdate], None]) -> None:
        with self._sessions.opened(self._broker_id) as session:
            self._session = session
            while True:
                for _ in range(min(len(self._requests), FEED_REQUESTS_PER_MESSAGE_MAX)):
                    session.take(self._requests.popleft())
                for update in session.updates():
                    take(update)
                # As much as a message has on a connection, then other work.
                await asyncio.sleep(0)
                if not self._requests:
                    await session.ready()
