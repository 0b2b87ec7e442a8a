"""The session of one consumer with its topic's controller, as a state machine.

    start() → Connect → connected() → Register → assigned() → Assigned
                                                 assigned() → Assigned, at each later push

Theory of operation. As in ``watch_session``: methods take what happened and return effects. The
controller's place comes from the newest layout; if it is not known any broker will do, which then
begins to lead the topic. ``Connect`` means: look the controller up again, so a broker that does not
lead any more is left after one failed attempt.

Before the first assignment, an error that a further attempt cannot change ends the session by
``StartFailed``. A controller that is being elected answers UnknownError, so other errors are tried
again; how long is the owner's affair. An assignment is taken if its layout is not older than that
of the last one: progress in reading old segments changes assignments within one epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from nextgen.client.st.domain.assignment import Assignment
from nextgen.client.st.domain.backoff import Backoff
from nextgen.client.st.errors import AlreadyClosed, ScalableTopicError


class RegistrationStatus(Enum):
    """Where a session is."""

    NEW = auto()
    CONNECTING = auto()
    REGISTERING = auto()
    LIVE = auto()
    PAUSING = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class Connect:
    """Get a connection to the controller; then ``connected`` or ``failed``."""


@dataclass(frozen=True, slots=True)
class Register:
    """Send the registration; then ``assigned`` or ``failed``."""

    consumer_id: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group. An error does not matter."""

    consumer_id: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Call ``paused`` after this time."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """The segments to read from here on."""

    assignment: Assignment
    former: Assignment | None


@dataclass(frozen=True, slots=True)
class StartFailed:
    """There will be no assignment. The session is closed."""

    error: ScalableTopicError


Effect = Connect | Register | Leave | Pause | Assigned | StartFailed
Effects = tuple[Effect, ...]


class ConsumerSession:
    """One consumer in one group."""

    def __init__(self) -> None:
        self.assignment: Assignment | None = None
        self.status = RegistrationStatus.NEW
        self._consumer_id: int | None = None
        self._backoff = Backoff()

    def __repr__(self) -> str:
        segments = 0 if self.assignment is None else len(self.assignment.segments)
        return f"<ConsumerSession {self.status.name}, {segments} segments>"

    def start(self) -> Effects:
        assert self.status is RegistrationStatus.NEW, "a session starts once"
        self.status = RegistrationStatus.CONNECTING
        return (Connect(),)

    def connected(self, consumer_id: int) -> Effects:
        """A connection is there. ``consumer_id`` was never used on it."""
        if self.status is not RegistrationStatus.CONNECTING:
            return ()
        self.status = RegistrationStatus.REGISTERING
        self._consumer_id = consumer_id
        return (Register(consumer_id),)

    def assigned(self, consumer_id: int, assignment: Assignment) -> Effects:
        """The answer to the registration, or a push."""
        if consumer_id != self._consumer_id:
            return ()
        self.status = RegistrationStatus.LIVE
        self._backoff.reset()
        former = self.assignment
        if former is not None and assignment.layout_epoch < former.layout_epoch:
            return ()
        self.assignment = assignment
        return () if assignment == former else (Assigned(assignment, former),)

    def failed(self, error: ScalableTopicError, *, is_final: bool = False) -> Effects:
        """Connecting or registering failed. ``is_final``: no further attempt can succeed."""
        if self.status not in (RegistrationStatus.CONNECTING, RegistrationStatus.REGISTERING):
            return ()
        if is_final and self.assignment is None:
            self.status = RegistrationStatus.CLOSED
            return (StartFailed(error),)
        return self._retry()

    def connection_lost(self, consumer_id: int) -> Effects:
        if consumer_id != self._consumer_id:
            return ()
        return self._retry()

    def topic_recreated(self) -> None:
        """The topic was deleted and created again: its epochs start anew."""
        if self.assignment is not None:
            self.assignment = Assignment(0, self.assignment.segments)

    def paused(self) -> Effects:
        if self.status is not RegistrationStatus.PAUSING:
            return ()
        self.status = RegistrationStatus.CONNECTING
        return (Connect(),)

    def close(self) -> Effects:
        """Leave the group. A start that is not over fails. Harmless when closed already."""
        if self.status is RegistrationStatus.CLOSED:
            return ()
        is_starting = self.assignment is None and self.status is not RegistrationStatus.NEW
        consumer_id, self._consumer_id = self._consumer_id, None
        self.status = RegistrationStatus.CLOSED
        effects: Effects = () if consumer_id is None else (Leave(consumer_id),)
        if is_starting:
            return (*effects, StartFailed(AlreadyClosed("the consumer was closed")))
        return effects

    def _retry(self) -> Effects:
        if self.status in (RegistrationStatus.CLOSED, RegistrationStatus.PAUSING):
            return ()
        self.status = RegistrationStatus.PAUSING
        self._consumer_id = None
        return (Pause(self._backoff.next_ms()),)
