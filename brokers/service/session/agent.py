"""The broker agent: finds its broker manager, keeps the session, executes its effects.

locate ──▶ dial + hello ──▶ greeting ──▶ deliveries, heartbeats ──▶ (broken) ──▶ locate ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import structlog

from brokers.domain.holding import Assignment, Prepare, Release, UnknownStep
from brokers.domain.session import (
    Began,
    BrokerSession,
    Changed,
    ChangedMetadata,
    Delivered,
    Disconnected,
    Effect,
    Expired,
    Input,
    Reconnect,
    ReportSync,
    Status,
    Step,
    Voided,
)
from brokers.ports.session import (
    Clock,
    DrainedSettled,
    DrainedUnit,
    Greeting,
    HeartbeatEcho,
    LoadMeter,
    LoadsRecorded,
    ManagerConnection,
    ManagerDialer,
    ManagerLocation,
    ManagerLocator,
    SegmentTraffic,
    Sleep,
    StreamEnded,
    Timing,
    TurnedAway,
)
from brokers.service.session.load_reports import LoadReports
from nextgen.kernel.errors import SessionExpired
from nextgen.kernel.limits.cluster import BROKER_GREETING_MS_MAX, BROKER_RECONNECT_BACKOFF_MS_MAX
from nextgen.tasks.first_to_end import run_until_first
from nextgen.tasks.timeouts import timeout

BACKOFF_MS_MIN = 20
"""First pause after a failed attempt; doubles from there."""

HINTS_IN_A_ROW_MAX = 3
"""Leader hints followed without a pause. More of them mean that two replicas name each other."""

LEADER_CHECK_MS = 5_000
"""Longest wait for a change of the leader; a change ends the wait earlier."""

_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class BrokerCounters:
    """Counters of the agent since it started."""

    deliveries_applied: int = 0
    sessions_established: int = 0
    sessions_voided: int = 0
    connections_opened: int = 0
    heartbeats_echoed: int = 0
    names_checked: int = 0
    deliveries_skipped: int = 0
    """Deliveries of a kind that this release does not know."""

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


class HoldingListener(Protocol):
    """Serves the assigned units. Called after each change of the holding; MUST NOT raise."""

    def assigned(self, assignment: Assignment) -> None: ...

    def released(self, release: Release) -> None: ...

    def prepare(self, assignment: Assignment) -> None:
        """A unit may be assigned soon. It MUST NOT be served because of this call."""
        ...

    def metadata_changed(self, changed: ChangedMetadata) -> None:
        """The policies of a tenant, namespace or topic of served units have changed."""
        ...

    def session_began(self) -> None:
        """A new session began with an empty holding: all earlier assignments are void."""
        ...


class BrokerAgent:
    """Keeps one broker registered. ``session.holding`` has the units that it may serve.

    ``listener``, if it is set, is called with each change of the holding.
    """

    def __init__(
        self,
        *,
        dialer: ManagerDialer,
        locator: ManagerLocator,
        load_meter: LoadMeter,
        clock: Clock,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.session = BrokerSession()
        self.counters = BrokerCounters()
        self.listener: HoldingListener | None = None
        self.on_connected: Callable[[], None] = lambda: None
        """Called when a connection to a manager is up: earlier reports may have been lost."""
        self.on_drained_settled: Callable[[Sequence[DrainedUnit]], None] = lambda _units: None
        """Called with the reported drained units that are settled."""
        self.on_loads_recorded: Callable[[Sequence[SegmentTraffic]], None] = lambda _loads: None
        """Called with what the shards of reported segments have on record."""
        self._dialer = dialer
        self._locator = locator
        self._loads = LoadReports(load_meter, clock)
        self._clock = clock
        self._sleep = sleep
        self._connection: ManagerConnection | None = None
        self._heard_at_ms = 0
        self._leader_hint = ""
        self._hints_in_a_row = 0
        self._drain_rate = 0
        self._takes_drained = False
        self._takes_loads = False

    def __repr__(self) -> str:
        return f"<BrokerAgent {self.session!r}>"

    @property
    def is_registered(self) -> bool:
        """Whether the session is up and connected."""
        return self.session.status is Status.CONNECTED

    @property
    def units_held(self) -> int:
        """Number of units that this broker may serve at the moment."""
        return len(self.session.holding.assignments)

    def use(self, dialer: ManagerDialer, listener: HoldingListener) -> None:
        """Serve by ``listener`` from the next ``run`` on, in a session of its own."""
        self._dialer, self.listener = dialer, listener
        self.session = BrokerSession()

    def report_idle(self, units: Sequence[Assignment]) -> None:
        """Report idle units to the manager; the report is lost without a connection."""
        if self._connection is not None and self.is_registered:
            self._connection.report_idle(units)

    def report_drained(self, units: Sequence[DrainedUnit]) -> None:
        """Report drained units to the manager; the report is lost without a connection."""
        if self._connection is not None and self.is_registered and self._takes_drained:
            self._connection.report_drained(units)

    def report_loads(self, segments: Sequence[SegmentTraffic]) -> None:
        """Report loads of segments to the manager; the report is lost without a connection."""
        if self._connection is not None and self.is_registered and self._takes_loads:
            self._connection.report_loads(segments)

    def ask_drain(self, units_per_second: int) -> None:
        """Request a drain from the manager, and again from each later manager."""
        self._drain_rate = units_per_second
        if self._connection is not None and self.is_registered:
            self._connection.ask_drain(units_per_second)

    async def run(self) -> None:
        """Keep the session until cancelled, then end it cleanly."""
        backoff_ms = BACKOFF_MS_MIN
        while True:
            location = self._next_location()
            if location is None:
                await self._locator.wait_change(BROKER_RECONNECT_BACKOFF_MS_MAX)
                continue
            began_at_ms = self._clock()
            greeted = await self._keep_connection(location)
            lasted_ms = self._clock() - began_at_ms
            if greeted:
                backoff_ms = BACKOFF_MS_MIN
            if self._leader_hint and self._hints_in_a_row < HINTS_IN_A_ROW_MAX:
                self._hints_in_a_row += 1
                continue
            self._leader_hint, self._hints_in_a_row = "", 0
            if greeted and lasted_ms >= BROKER_RECONNECT_BACKOFF_MS_MAX:
                # The manager waits for this broker for a limited time, but a manager that ends
                # every connection at once must not be dialled without a pause.
                continue
            await self._locator.wait_change(backoff_ms)
            backoff_ms = min(2 * backoff_ms, BROKER_RECONNECT_BACKOFF_MS_MAX)

    def _next_location(self) -> ManagerLocation | None:
        location = self._locator.location()
        if self._leader_hint:
            return ManagerLocation(self._leader_hint, location.term if location else 0)
        return location

    async def _keep_connection(self, location: ManagerLocation) -> bool:
        """Use one connection until it ends; return whether the manager sent a greeting on it."""
        session_id, last_sequence = self.session.resume_point
        connection = self._dialer.dial(
            location.endpoint, session_id, last_sequence, self.units_held
        )
        self.counters.connections_opened += 1
        self._connection = connection
        self._leader_hint = ""
        try:
            timing = await self._greet_unless_moved(connection, location)
            if timing is None:
                return False
            _logger.info("session is up", manager=location.endpoint, session=repr(self.session))
            if self._drain_rate:
                connection.ask_drain(self._drain_rate)
            self.on_connected()
            await self._converse(connection, location, timing)
            return True
        except asyncio.CancelledError:
            if self.is_registered:
                await connection.say_goodbye()
            raise
        finally:
            self._take(Disconnected())
            connection.close()
            self._connection = None

    async def _greet_unless_moved(
        self, connection: ManagerConnection, location: ManagerLocation
    ) -> Timing | None:
        """Return the manager's greeting, or None when the manager is known to be elsewhere.

        A vanished host neither accepts nor refuses a connection, and the next leader waits for this
        broker only for a limited time.
        """
        timing: Timing | None = None

        async def greet() -> None:
            nonlocal timing
            timing = await self._greet(connection)

        await run_until_first(greet(), self._watch_leader(location))
        return timing

    async def _greet(self, connection: ManagerConnection) -> Timing | None:
        try:
            async with timeout(BROKER_GREETING_MS_MAX / 1000):
                answer = await connection.receive()
        except TimeoutError:
            return None
        match answer:
            case Greeting(established, timing):
                if not established.resumed:
                    self.counters.sessions_established += 1
                self._hints_in_a_row = 0
                self._heard_at_ms = self._clock()
                self._takes_drained = answer.takes_drained
                self._takes_loads = answer.takes_loads
                self._take(established)
                if not self.is_registered:
                    return None
                if answer.wants_held:
                    connection.report_held(self.session.holding)
                return timing
            case TurnedAway():
                self._turned_away(answer)
            case StreamEnded(message):
                _logger.debug("broker manager not reached", message=message)
            case _:
                _logger.warning("broker manager did not greet first")
        return None

    async def _converse(
        self, connection: ManagerConnection, location: ManagerLocation, timing: Timing
    ) -> None:
        """Return when the connection ended or fell silent, or the manager is elsewhere."""
        await run_until_first(
            self._read(connection),
            self._heartbeat(connection, timing),
            self._watch_leader(location),
        )

    async def _read(self, connection: ManagerConnection) -> None:
        while True:
            arrived = await connection.receive()
            self._heard_at_ms = self._clock()
            match arrived:
                case Delivered():
                    before = self.session.applied_sequence
                    self._note_unknown(arrived)
                    self._take(arrived)
                    self.counters.deliveries_applied += max(
                        0, self.session.applied_sequence - before
                    )
                    if not self.is_registered:
                        return
                case HeartbeatEcho():
                    self.counters.heartbeats_echoed += 1
                    if arrived.load_refused:
                        _logger.warning("load refused", why=arrived.load_refused)
                case LoadsRecorded() | DrainedSettled():
                    self._note_answer(arrived)
                case TurnedAway():
                    self._turned_away(arrived)
                    return
                case StreamEnded(message):
                    _logger.info("connection to the broker manager ended", message=message)
                    return
                case Greeting():
                    _logger.warning("broker manager greeted twice")
                    return

    def _note_answer(self, arrived: LoadsRecorded | DrainedSettled) -> None:
        """Pass on what became of reports."""
        if isinstance(arrived, LoadsRecorded):
            self.on_loads_recorded(arrived.segments)
        else:
            self.on_drained_settled(arrived.units)

    def _note_unknown(self, arrived: Delivered) -> None:
        for delivery in arrived.deliveries:
            if (
                isinstance(delivery.payload, UnknownStep)
                and delivery.sequence > self.session.applied_sequence
            ):
                self.counters.deliveries_skipped += 1
                _logger.warning("a delivery of an unknown kind is skipped", at=delivery.sequence)

    async def _heartbeat(self, connection: ManagerConnection, timing: Timing) -> None:
        self._loads.start_over()
        while True:
            holding = self.session.holding
            holding.expire(self._clock())
            connection.heartbeat(self._loads.due(len(holding.assignments)))
            wakes_at_ms = self._clock() + timing.heartbeat_ms
            await self._sleep(timing.heartbeat_ms / 1000)
            # Messages that arrived while this process was stopped are still to be read: that time
            # does not count as silence.
            silence_ms = min(self._clock(), wakes_at_ms) - self._heard_at_ms
            if silence_ms >= timing.session_ttl_ms:
                _logger.info("broker manager fell silent", silence_ms=silence_ms)
                return

    async def _watch_leader(self, location: ManagerLocation) -> None:
        while True:
            known = self._locator.location()
            # A hint may be newer than the pushed state, so only a later term counts.
            if known and known.endpoint != location.endpoint and known.term > location.term:
                _logger.info("broker manager moved", manager=known.endpoint)
                return
            await self._locator.wait_change(LEADER_CHECK_MS)

    def _turned_away(self, answer: TurnedAway) -> None:
        _logger.info("turned away", reason=answer.reason, message=answer.message)
        self._leader_hint = answer.leader_hint
        if answer.reason == SessionExpired.reason:
            self._take(Expired())

    def _take(self, given: Input) -> None:
        self._carry_out(self.session.step(given))

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case ReportSync(sequence):
                    if self._connection is not None:
                        self._connection.report_sync(sequence)
                case Reconnect(reason):
                    _logger.warning("connecting anew", reason=reason)
                case Voided(units):
                    self.counters.sessions_voided += 1
                    _logger.warning("session is over, its units are void", units=units)
                case Changed(steps):
                    self._tell(steps)
                case Began():
                    if self.listener is not None:
                        self.listener.session_began()

    def _tell(self, steps: tuple[Step, ...]) -> None:
        if self.listener is None:
            return
        for step in steps:
            if isinstance(step, Assignment):
                self.listener.assigned(step)
            elif isinstance(step, Release):
                self.listener.released(step)
            elif isinstance(step, Prepare):
                self.listener.prepare(step.assignment)
            else:
                self.listener.metadata_changed(step)
