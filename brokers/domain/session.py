"""The broker's side of a session with its broker manager, without any I/O.

    connect ──▶ hello ──▶ Established ──▶ Delivered* ──▶ Disconnected ──▶ hello (resume) ...

The manager sends one dense sequence per session: tenants, namespaces, assignments, releases and
changes of metadata, each with the next number. The machine applies it in order, skips numbers that
it has applied, and never applies anything behind a gap. At a gap it requests a new connection, on
which the session resumes behind the last applied number. Two gaps without progress between them
mean that the manager no longer has the missing numbers, so the session is given up.

A broken connection voids nothing: a broker that is cut off serves on. A session that the manager
does not resume is void, because its units may have been assigned to others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from brokers.domain.holding import (
    Assignment,
    Holding,
    NamespaceMetadata,
    Payload,
    Prepare,
    Release,
    TenantMetadata,
    TopicMetadata,
)


class Status(StrEnum):
    """The states of the session."""

    UNREGISTERED = "unregistered"
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"


@dataclass(frozen=True, slots=True)
class Established:
    """The manager accepted the hello. ``next_sequence`` is the first number it will send."""

    session_id: str
    epoch: int
    resumed: bool
    next_sequence: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """One step of the session's sequence."""

    sequence: int
    payload: Payload


@dataclass(frozen=True, slots=True)
class Delivered:
    """Steps that arrived together. ``now_ms`` is monotonic."""

    deliveries: Sequence[Delivery]
    now_ms: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is closed; the session may be resumed."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The manager reports that the session has ended."""


Input = Established | Delivered | Disconnected | Expired


@dataclass(frozen=True, slots=True)
class ReportSync:
    """Report to the manager that everything up to ``sequence`` is applied."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Close this connection and open another one, with a hello from ``resume_point``."""

    reason: str


@dataclass(frozen=True, slots=True)
class Voided:
    """An earlier session ended, and its ``units`` assigned units are void."""

    units: int


ChangedMetadata = TenantMetadata | NamespaceMetadata | TopicMetadata
"""An object whose policies changed."""


Step = Assignment | Release | Prepare | ChangedMetadata
"""The notifications to the listeners of a session."""


@dataclass(frozen=True, slots=True)
class Changed:
    """These steps, in order, changed the served units; the holding has applied them."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Began:
    """A new session began, with an empty holding."""


Effect = ReportSync | Reconnect | Voided | Changed | Began


class BrokerSession:
    """The session's state machine; owned by one task. ``holding`` has the units to serve."""

    def __init__(self) -> None:
        self.status = Status.UNREGISTERED
        self.session_id = ""
        self.epoch = 0
        self.applied_sequence = 0
        self.holding = Holding()
        self._gap_at_sequence: int | None = None

    def __repr__(self) -> str:
        return (
            f"<BrokerSession {self.status} id={self.session_id or '-'} epoch={self.epoch} "
            f"applied={self.applied_sequence} {self.holding!r}>"
        )

    @property
    def resume_point(self) -> tuple[str, int]:
        """Session id (empty: request a new session) and last applied number, for the next hello."""
        return (self.session_id, self.applied_sequence)

    def step(self, given: Input) -> tuple[Effect, ...]:
        """Handle one input and return the effects, in order."""
        match given:
            case Established():
                return self._established(given)
            case Delivered():
                return self._delivered(given)
            case Disconnected():
                if self.status is Status.CONNECTED:
                    self.status = Status.DISCONNECTED
                return ()
            case Expired():
                return self._give_up("the broker manager ended the session")

    def _established(self, given: Established) -> tuple[Effect, ...]:
        if given.resumed and given.session_id == self.session_id:
            self.status = Status.CONNECTED
            self.epoch = given.epoch
            if given.next_sequence > self.applied_sequence + 1:
                return self._give_up(
                    f"the broker manager resumes at {given.next_sequence}, "
                    f"applied is {self.applied_sequence}"
                )
            return (ReportSync(self.applied_sequence),)

        voided = self._void()
        self.status = Status.CONNECTED
        self.session_id = given.session_id
        self.epoch = given.epoch
        self.applied_sequence = given.next_sequence - 1
        return (*voided, Began())

    def _delivered(self, given: Delivered) -> tuple[Effect, ...]:
        if self.status is not Status.CONNECTED:
            return ()
        gap: tuple[Effect, ...] = ()
        steps: list[Step] = []
        for delivery in given.deliveries:
            if delivery.sequence <= self.applied_sequence:
                continue
            if delivery.sequence > self.applied_sequence + 1:
                gap = self._gap(delivery.sequence)
                break
            steps.extend(self._apply(delivery.payload, given.now_ms))
            self.applied_sequence = delivery.sequence
        # Before the report: when the manager gets it, the changes must have taken effect here.
        changed: tuple[Effect, ...] = (Changed(tuple(steps)),) if steps else ()
        if not self.session_id:
            return (*changed, *gap)
        return (*changed, ReportSync(self.applied_sequence), *gap)

    def _apply(self, payload: Payload, now_ms: int) -> Iterator[Step]:
        """Apply a step to the holding, and yield the steps that change the served units."""
        brought = payload.topic if isinstance(payload, Assignment) else None
        known = None if brought is None else self.holding.topics.get(brought.topic_id)
        has_changed = self.holding.apply(payload, now_ms)
        if has_changed and isinstance(payload, Step):
            yield payload
        if brought is not None and known is not None:
            held = self.holding.topics.get(brought.topic_id)
            if held is not None and held.policies != known.policies:
                # The assignment brought another version of the topic, for its other units too.
                yield held

    def _gap(self, sequence: int) -> tuple[Effect, ...]:
        reason = f"sequence {sequence} arrived, {self.applied_sequence + 1} was next"
        if self._gap_at_sequence == self.applied_sequence:
            return self._give_up(f"{reason}, again")
        self._gap_at_sequence = self.applied_sequence
        self.status = Status.DISCONNECTED
        return (Reconnect(reason),)

    def _give_up(self, reason: str) -> tuple[Effect, ...]:
        return (*self._void(), Reconnect(reason))

    def _void(self) -> tuple[Effect, ...]:
        units = len(self.holding.assignments)
        had_session = bool(self.session_id)
        self.status = Status.UNREGISTERED
        self.session_id = ""
        self.epoch = 0
        self.applied_sequence = 0
        self.holding = Holding()
        self._gap_at_sequence = None
        return (Voided(units),) if had_session else ()
