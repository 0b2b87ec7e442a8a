"""The watch of one topic's layout, as a state machine.

    start()  → Connect → connected() → Lookup → updated(layout) → Started
                                                updated(layout) → Changed, when it is newer
    the connection ends, the server fails, no answer: Pause → paused() → Connect → …

Theory of operation. Methods take what happened and return effects, in order, which the owner MUST
carry out. Before the first layout every failure is final: ``StartFailed`` is returned once, and the
session is closed. Afterwards none is: the session connects again after a pause that doubles from
``SESSION_RETRY_MS_MIN`` to ``SESSION_RETRY_MS_MAX``; whatever happens during a pause or an attempt
starts no second one.

A lookup has a session id of its own, chosen by the owner. Updates for another id are late or
strange, and are dropped.

Servers do not announce deletions, and answer TopicNotFound to passing failures, too. A topic is
taken for deleted (``Vanished``) after ``DELETED_AFTER_ANSWERS`` such answers without a layout in
between. The session goes on, so that it finds a topic that is created again. Only the first lookup
may create the topic: a client that comes back does not revive what was deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from nextgen.client.st.domain.backoff import Backoff
from nextgen.client.st.domain.layout import Layout, Succession, compare_layouts
from nextgen.client.st.errors import (
    AlreadyClosed,
    ConnectionFailed,
    MalformedLayout,
    NotSupported,
    ScalableTopicError,
    TimedOut,
    TopicNotFound,
)
from nextgen.kernel.limits.scalable import DELETED_AFTER_ANSWERS


class WatchStatus(Enum):
    """Where a session is."""

    NEW = auto()
    CONNECTING = auto()
    ASKING = auto()
    LIVE = auto()
    PAUSING = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class Connect:
    """Get a connection; then ``connected`` or ``connect_failed``."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Send the lookup; without an answer in time ``timed_out``."""

    session_id: int
    topic: str
    create_if_missing: bool


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Tell the server that the session has ended, if its connection is still there."""

    session_id: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Call ``paused`` after this time."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Started:
    """The first layout."""

    layout: Layout


@dataclass(frozen=True, slots=True)
class Changed:
    """A newer layout; ``is_repeated``: one of the same epoch, whose hints may differ."""

    layout: Layout
    former: Layout
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class Vanished:
    """The topic seems to be deleted."""


@dataclass(frozen=True, slots=True)
class StartFailed:
    """There will be no layout. The session is closed."""

    error: ScalableTopicError


Effect = Connect | Lookup | CloseSession | Pause | Started | Changed | Vanished | StartFailed
Effects = tuple[Effect, ...]


class WatchSession:
    """One watch. ``topic`` becomes the name that the server resolves it to."""

    def __init__(self, topic: str, *, create_if_missing: bool) -> None:
        self.topic = topic
        self.layout: Layout | None = None
        self.is_vanished = False
        self.status = WatchStatus.NEW
        self._create_if_missing = create_if_missing
        self._session_id: int | None = None
        self._backoff = Backoff()
        self._not_found_answers = 0

    def __repr__(self) -> str:
        epoch = None if self.layout is None else self.layout.epoch
        return f"<WatchSession {self.topic} {self.status.name} epoch {epoch}>"

    def start(self) -> Effects:
        assert self.status is WatchStatus.NEW, "a session starts once"
        self.status = WatchStatus.CONNECTING
        return (Connect(),)

    def connected(self, session_id: int, *, has_scalable_topics: bool) -> Effects:
        """A connection is there; ``has_scalable_topics``: its server announces the feature."""
        if self.status is not WatchStatus.CONNECTING:
            return ()
        if not has_scalable_topics:
            return self._failed(NotSupported("the server does not support scalable topics"))
        self.status = WatchStatus.ASKING
        self._session_id = session_id
        may_create = self._create_if_missing and self.layout is None
        return (Lookup(session_id, self.topic, may_create),)

    def connect_failed(self, error: ScalableTopicError) -> Effects:
        if self.status is not WatchStatus.CONNECTING:
            return ()
        return self._failed(error)

    def connection_lost(self, session_id: int) -> Effects:
        if session_id != self._session_id:
            return ()
        self._session_id = None
        return self._failed(ConnectionFailed("the connection ended"))

    def timed_out(self, session_id: int) -> Effects:
        """No answer to the lookup came in time."""
        if session_id != self._session_id or self.status is not WatchStatus.ASKING:
            return ()
        error = TimedOut(f"no layout of {self.topic} in time")
        return (*self._end_session(), *self._failed(error))

    def updated(self, session_id: int, layout: Layout, resolved_topic: str = "") -> Effects:
        """The server sent a layout."""
        if session_id != self._session_id:
            return ()
        self.status = WatchStatus.LIVE
        self._backoff.reset()
        self._not_found_answers = 0
        self.is_vanished = False
        self.topic = resolved_topic or self.topic
        former = self.layout
        succession = compare_layouts(former, layout)
        if succession is Succession.STALE:
            return ()
        self.layout = layout
        if former is None:
            return (Started(layout),)
        return (Changed(layout, former, is_repeated=succession is Succession.REPEATED),)

    def refused(self, session_id: int, error: ScalableTopicError) -> Effects:
        """The server sent an error or a malformed layout in place of a layout."""
        if session_id != self._session_id:
            return ()
        if isinstance(error, MalformedLayout) and self.layout is not None:
            # The last good layout stays; the server sends the next one by itself.
            self.status = WatchStatus.LIVE
            return ()
        effects = self._end_session()
        if isinstance(error, TopicNotFound) and self.layout is not None:
            self._not_found_answers += 1
            if self._not_found_answers == DELETED_AFTER_ANSWERS:
                self.is_vanished = True
                effects = (*effects, Vanished())
        return (*effects, *self._failed(error))

    def paused(self) -> Effects:
        if self.status is not WatchStatus.PAUSING:
            return ()
        self.status = WatchStatus.CONNECTING
        return (Connect(),)

    def close(self) -> Effects:
        """End the session. A start that is not over fails. Harmless when closed already."""
        if self.status is WatchStatus.CLOSED:
            return ()
        is_starting = self.layout is None and self.status is not WatchStatus.NEW
        effects = self._end_session()
        self.status = WatchStatus.CLOSED
        if is_starting:
            return (*effects, StartFailed(AlreadyClosed("the watch was closed")))
        return effects

    def _end_session(self) -> Effects:
        session_id, self._session_id = self._session_id, None
        return () if session_id is None else (CloseSession(session_id),)

    def _failed(self, error: ScalableTopicError) -> Effects:
        if self.status in (WatchStatus.CLOSED, WatchStatus.PAUSING):
            return ()
        if self.layout is None:
            self.status = WatchStatus.CLOSED
            return (StartFailed(error),)
        self.status = WatchStatus.PAUSING
        return (Pause(self._backoff.next_ms()),)
