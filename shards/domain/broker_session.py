"""The session of one broker, and how much of its capacity may be leased out.

A broker id has one session at a time. ``epoch`` grows with each session. An ended session never
returns: the broker registers again and gets another session id. A broker whose sessions begin too
often is put in quarantine: it keeps its units and gets no others. A drain and a changed capacity
belong to the session: a restarted broker is not drained, and has the capacity that it announces.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import BROKER_CAPACITY_UNITS_MAX
from nextgen.kernel.limits.placement import (
    DRAIN_UNITS_PER_SECOND_MAX,
    QUARANTINE_MS,
    QUARANTINE_WINDOW_MS,
    SESSIONS_STARTED_MAX,
)

REASON_EXPIRED = "expired"
"""The broker was silent on an open stream, or did not connect to a leader that not every node knew
of."""

REASON_DISCONNECTED = "disconnected"
"""The stream broke, or another leader took over, and the broker did not reconnect."""

REASON_NOT_FOLLOWED = "not_followed"
"""The broker holds more metadata than its manager can watch: changes of it could be missed."""

REASON_CLOSED = "closed"
REASON_REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """A broker's addresses; "" for a protocol that it does not serve."""

    pulsar_url: str
    grpc: str
    http: str


@dataclass(frozen=True, slots=True)
class EstablishSession:
    """``session_id`` is minted for this command. A live session of the broker is replaced.

    ``at_ms`` is Unix time, 0 for none: such a session does not count as a start.
    """

    broker_id: str
    session_id: str
    endpoints: Endpoints
    capacity_units: int
    zone: str = ""
    rack: str = ""
    at_ms: int = 0
    least_epoch: int = 1
    """The least epoch that may be used: see ``nextgen.kernel.events.generations``."""
    kind: str = ""
    """A ``BrokerKind``: "" of an embedded broker."""


@dataclass(frozen=True, slots=True)
class EndSession:
    """``reason`` is one of this module's."""

    broker_id: str
    session_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class GrantCapacity:
    """Allow ``units`` in all to be leased out; never fewer than the session was granted before."""

    broker_id: str
    session_id: str
    units: int


@dataclass(frozen=True, slots=True)
class SetDrain:
    """Begin or cancel a drain. ``units_per_second`` is for the whole cluster, 0 the default."""

    broker_id: str
    session_id: str
    draining: bool
    units_per_second: int = 0


@dataclass(frozen=True, slots=True)
class SetCapacity:
    """Change the session's capacity to ``capacity_units``: 1 to what the broker announced."""

    broker_id: str
    session_id: str
    capacity_units: int


@dataclass(frozen=True, slots=True)
class BrokerSessionEstablished:
    """``quarantined_until_ms`` is Unix time, 0 for no quarantine."""

    broker_id: str
    session_id: str
    epoch: int
    endpoints: Endpoints
    capacity_units: int
    zone: str
    rack: str = ""
    quarantined_until_ms: int = 0
    established_at_ms: int = 0
    kind: str = ""


@dataclass(frozen=True, slots=True)
class BrokerSessionEnded:
    broker_id: str
    session_id: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class CapacityGranted:
    """``units`` is the total after this event."""

    broker_id: str
    session_id: str
    units: int


@dataclass(frozen=True, slots=True)
class BrokerDrainSet:
    """``revision`` counts these events and ``BrokerCapacitySet`` within the session, from 1."""

    broker_id: str
    session_id: str
    draining: bool
    units_per_second: int
    revision: int


@dataclass(frozen=True, slots=True)
class BrokerCapacitySet:
    """``revision`` counts as in ``BrokerDrainSet``; ``granted_units`` is the grant after it."""

    broker_id: str
    session_id: str
    capacity_units: int
    revision: int
    granted_units: int


@dataclass(frozen=True, slots=True)
class BrokerLoadReported:
    """The broker's load, serialised: for later analysis, no state depends on it."""

    broker_id: str
    session_id: str
    load: bytes


BrokerSessionCommand = EstablishSession | EndSession | GrantCapacity | SetDrain | SetCapacity
BrokerSessionEvent = (
    BrokerSessionEstablished
    | BrokerSessionEnded
    | CapacityGranted
    | BrokerDrainSet
    | BrokerCapacitySet
    | BrokerLoadReported
)


@dataclass(frozen=True, slots=True)
class BrokerSession:
    """The latest session of a broker id. It is kept after its end, for its epoch."""

    broker_id: str
    session_id: str
    epoch: int
    is_live: bool
    endpoints: Endpoints
    capacity_units: int
    zone: str
    granted_units: int
    rack: str = ""
    quarantined_until_ms: int = 0
    draining: bool = False
    drain_units_per_second: int = 0
    revision: int = 0
    started_at_ms: tuple[int, ...] = ()
    """When the last sessions of this broker began, this one included: ``SESSIONS_STARTED_MAX``."""

    announced_units: int = 0
    """The capacity that the broker announced, if it was lowered since; 0: ``capacity_units``."""

    kind: str = ""


BrokerSessionState = BrokerSession | None
INITIAL: BrokerSessionState = None


def decide(
    session: BrokerSessionState, command: BrokerSessionCommand
) -> Accepted[BrokerSessionEvent] | Rejected:
    """Decide what ``command`` means for ``session``."""
    match command:
        case EstablishSession():
            return _decide_establish(session, command)
        case EndSession():
            return _decide_end(session, command)
        case GrantCapacity():
            return _decide_grant(session, command)
        case SetDrain():
            return _decide_drain(session, command)
        case SetCapacity():
            return _decide_capacity(session, command)
        case _:
            assert_never(command)


def evolve(session: BrokerSessionState, event: BrokerSessionEvent) -> BrokerSessionState:
    """Return ``session`` as it is after ``event``."""
    if isinstance(event, BrokerSessionEstablished):
        return BrokerSession(
            event.broker_id,
            event.session_id,
            event.epoch,
            True,
            event.endpoints,
            event.capacity_units,
            event.zone,
            0,
            event.rack,
            event.quarantined_until_ms,
            started_at_ms=_started(session, event.established_at_ms),
            kind=event.kind,
        )
    assert session is not None, f"{type(event).__name__} for {event.broker_id}, never seen"
    assert session.session_id == event.session_id, (
        f"{type(event).__name__} for session {event.session_id} of {event.broker_id}, "
        f"which is at {session.session_id}"
    )
    match event:
        case BrokerSessionEnded():
            return replace(session, is_live=False)
        case CapacityGranted():
            return replace(session, granted_units=event.units)
        case BrokerDrainSet():
            return replace(
                session,
                draining=event.draining,
                drain_units_per_second=event.units_per_second,
                revision=event.revision,
            )
        case BrokerCapacitySet():
            return _with_capacity(session, event)
        case BrokerLoadReported():
            return session
        case _:
            assert_never(event)


def _decide_establish(
    session: BrokerSessionState, command: EstablishSession
) -> Accepted[BrokerSessionEvent] | Rejected:
    if not 0 <= command.capacity_units <= BROKER_CAPACITY_UNITS_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"broker {command.broker_id} reports a capacity of {command.capacity_units} units, "
            f"at most {BROKER_CAPACITY_UNITS_MAX} are allowed",
        )
    established = BrokerSessionEstablished(
        command.broker_id,
        command.session_id,
        max(command.least_epoch, 1 if session is None else session.epoch + 1),
        command.endpoints,
        command.capacity_units,
        command.zone,
        command.rack,
        _quarantine(session, command.at_ms),
        command.at_ms,
        command.kind,
    )
    if session is None:
        return Accepted((established,))
    if session.session_id == command.session_id:
        return Accepted(()) if session.is_live else _expired(command.broker_id, session.session_id)
    if not session.is_live:
        return Accepted((established,))
    return Accepted((_ended(session, REASON_REPLACED), established))


def _decide_end(
    session: BrokerSessionState, command: EndSession
) -> Accepted[BrokerSessionEvent] | Rejected:
    if session is None:
        return _expired(command.broker_id, command.session_id)
    # A later session exists: the session of the command ended when that one began.
    if session.session_id != command.session_id or not session.is_live:
        return Accepted(())
    return Accepted((_ended(session, command.reason),))


def _decide_grant(
    session: BrokerSessionState, command: GrantCapacity
) -> Accepted[BrokerSessionEvent] | Rejected:
    if session is None or session.session_id != command.session_id or not session.is_live:
        return _expired(command.broker_id, command.session_id)
    if command.units > session.capacity_units:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"{command.units} units asked for, broker {command.broker_id} "
            f"has {session.capacity_units}",
        )
    if command.units <= session.granted_units:
        return Accepted(())
    return Accepted((CapacityGranted(command.broker_id, command.session_id, command.units),))


def _decide_drain(
    session: BrokerSessionState, command: SetDrain
) -> Accepted[BrokerSessionEvent] | Rejected:
    if session is None or session.session_id != command.session_id or not session.is_live:
        return _expired(command.broker_id, command.session_id)
    if not 0 <= command.units_per_second <= DRAIN_UNITS_PER_SECOND_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"a drain of {command.units_per_second} units a second, "
            f"at most {DRAIN_UNITS_PER_SECOND_MAX} are allowed",
        )
    units_per_second = command.units_per_second if command.draining else 0
    if (session.draining, session.drain_units_per_second) == (command.draining, units_per_second):
        return Accepted(())
    drain = BrokerDrainSet(
        command.broker_id,
        command.session_id,
        command.draining,
        units_per_second,
        session.revision + 1,
    )
    return Accepted((drain,))


def _decide_capacity(
    session: BrokerSessionState, command: SetCapacity
) -> Accepted[BrokerSessionEvent] | Rejected:
    if session is None or session.session_id != command.session_id or not session.is_live:
        return _expired(command.broker_id, command.session_id)
    announced = session.announced_units or session.capacity_units
    if not 1 <= command.capacity_units <= announced:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"capacity_units is {command.capacity_units}, it may be 1 to {announced}, "
            f"which broker {command.broker_id} announced",
        )
    if command.capacity_units == session.capacity_units:
        return Accepted(())
    changed = BrokerCapacitySet(
        command.broker_id,
        command.session_id,
        command.capacity_units,
        session.revision + 1,
        # The cluster manager asks for more once the capacity grows again.
        min(session.granted_units, command.capacity_units),
    )
    return Accepted((changed,))


def _with_capacity(session: BrokerSession, event: BrokerCapacitySet) -> BrokerSession:
    announced = session.announced_units or session.capacity_units
    return replace(
        session,
        capacity_units=event.capacity_units,
        announced_units=announced if event.capacity_units < announced else 0,
        granted_units=event.granted_units,
        revision=event.revision,
    )


def _started(before: BrokerSessionState, at_ms: int) -> tuple[int, ...]:
    """Return the begins of the last sessions, including one at ``at_ms``, oldest first."""
    earlier = () if before is None else before.started_at_ms
    return (*earlier, at_ms)[-SESSIONS_STARTED_MAX:] if at_ms else earlier


def _quarantine(before: BrokerSessionState, at_ms: int) -> int:
    """Return when the quarantine of a session that begins at ``at_ms`` ends, 0 for none.

    A new session does not end a quarantine: it serves the rest of it.
    """
    if before is None or not at_ms:
        return 0
    recent = [each for each in before.started_at_ms if at_ms - each < QUARANTINE_WINDOW_MS]
    if len(recent) >= SESSIONS_STARTED_MAX:
        return at_ms + QUARANTINE_MS
    return before.quarantined_until_ms if before.quarantined_until_ms > at_ms else 0


def _ended(session: BrokerSession, reason: str) -> BrokerSessionEnded:
    return BrokerSessionEnded(session.broker_id, session.session_id, session.epoch, reason)


def _expired(broker_id: str, session_id: str) -> Rejected:
    return Rejected(
        RejectionCode.SESSION_EXPIRED,
        f"session {session_id} of broker {broker_id} is not its live session",
    )
