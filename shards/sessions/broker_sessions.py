"""The sessions of the brokers whose slot a shard has: begun, resumed, kept alive, ended.

    hello ──▶ established ──▶ heard from ... ──▶ silence, goodbye or a successor ──▶ ended, for good
                                  ╰─▶ stream broken, ──▶ not back in time ─────────────╯
                                      or another leader

The beginning and end of a session are decided here and recorded in the log; its soft state is in
``session_soft_state``. One instance lives for one term of leadership.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import structlog

from nextgen.kernel.errors import InvalidRequest, MetadataError, Overloaded, SessionExpired
from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.limits.cluster import (
    SESSION_HEARTBEAT_MS,
    SESSION_RESUME_MS,
    SESSION_TTL_MS,
    SESSIONS_PER_SHARD_MAX,
)
from nextgen.tasks.background import start
from protos.nextgen.v1.broker_service_pb2 import (
    BrokerHeartbeat,
    BrokerHello,
    BrokerMessage,
    DrainedUnits,
    DrainWish,
    HeartbeatAck,
    HeldMetadata,
    IdleUnits,
    ManagerMessage,
    SegmentLoadReports,
)
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.shard_service_pb2 import BrokerSessionStatus
from shards.domain import broker_session
from shards.domain.broker_session import (
    REASON_CLOSED,
    BrokerSession,
    EndSession,
    SetCapacity,
    SetDrain,
)
from shards.ports import Cancellable, Clock, SessionReports
from shards.sessions.metadata_watch import MetadataWatch
from shards.sessions.session_hello import (
    LET_GO_S,
    check_held,
    check_hello,
    established_message,
    is_resumable,
    is_same_broker,
    session_command,
    session_rejection,
    status_of,
)
from shards.sessions.session_loads import SessionLoads
from shards.sessions.session_soft_state import BrokerConnection, SessionSoftState
from shards.state.shard_state import ShardState
from shards.wire.session_event import to_recorded

_T = TypeVar("_T")
_logger = structlog.get_logger(__name__)


class BrokerSessions:
    """The live sessions of one shard's brokers, for one term."""

    def __init__(
        self,
        shard_id: int,
        state: ShardState,
        metadata: MetadataWatch,
        reports: SessionReports,
        clock: Clock,
    ) -> None:
        self._shard_id = shard_id
        self._metadata = metadata
        self._state = state
        self._reports = reports
        self._clock = clock
        self._sessions: dict[str, SessionSoftState] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._timer: Cancellable | None = None
        self.loads = SessionLoads(shard_id, state, reports, clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._decisions: set[asyncio.Task[Any]] = set()
        self._beginning: dict[str, tuple[BrokerHello, asyncio.Task[SessionSoftState]]] = {}
        self._undecided: dict[str, int] = {}
        self._came_at = 0.0
        """When a broker came here for the first time, the latest of them."""
        self._closed: MetadataError | None = None
        self.on_drain_wish: Callable[[BrokerRecorded, DrainWish], None] = lambda _r, _wish: None
        """Called when a broker requests its drain; the others with what it reports."""
        self.on_idle: Callable[[BrokerRecorded, IdleUnits], None] = lambda _record, _idle: None
        self.on_drained: Callable[[BrokerRecorded, DrainedUnits], None] = lambda _r, _units: None
        self.on_loads: Callable[[BrokerRecorded, SegmentLoadReports], None] = lambda _r, _l: None
        self._unsubscribe = reports.on_reconnect(self._report_all)

    def __repr__(self) -> str:
        return f"<BrokerSessions shard={self._shard_id} sessions={len(self._sessions)}>"

    @property
    def count(self) -> int:
        return len(self._sessions)

    @property
    def unreported(self) -> list[SessionSoftState]:
        """Sessions whose broker has still to report what it holds."""
        return [each for each in self._sessions.values() if each.metadata.awaits_report]

    @property
    def parents_max(self) -> int:
        """Tenants and namespaces of the session that has the most of them."""
        return max((each.metadata.parent_count for each in self._sessions.values()), default=0)

    @property
    def unsynced(self) -> int:
        """Deliveries that brokers have not confirmed, all sessions together."""
        return sum(session.unsynced for session in self._sessions.values())

    def start(self) -> None:
        """Take over the live sessions in the log; each counts as heard from at this moment."""
        self.take_over(lambda _broker_id: True)

    def take_over(self, is_here: Callable[[str], bool]) -> None:
        """Take over the live sessions in the log of brokers of which ``is_here`` is true."""
        now = self._clock.monotonic()
        for session in self._state.scans.sessions():
            if session.is_live and is_here(session.broker_id):
                # Only the broker knows what an earlier leader sent to it.
                self._add(to_recorded(session), now).metadata.awaits_report = True
        self._report_all()

    def let_go(self, is_gone: Callable[[str], bool], error: MetadataError) -> None:
        """Leave sessions to the shard that manages their brokers from here on: see ``error``."""
        dropped_at = self._clock.monotonic() + LET_GO_S
        for session_id, session in tuple(self._sessions.items()):
            if is_gone(session.record.broker_id):
                self._sessions.pop(session_id).end(error)
                self.loads.forget(session_id)
                # Writes wait for it until its next manager can have it watched.
                self._clock.call_at(dropped_at, partial(self._metadata.drop_all, session))

    def note_announced(self) -> None:
        """Note that every node knows this leader: start the time for brokers to connect."""
        now = self._clock.monotonic()
        for session in self._sessions.values():
            if not session.attached.is_set() and session.broken_at is None:
                session.broken_at = now
                self._look_at(session, session.deadline)
        self._schedule()

    def close(self, error: MetadataError) -> None:
        """Stop leading: all waiting callers fail with ``error``, brokers connect elsewhere."""
        self._closed = error
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()
        self.loads.close()
        for task in self._tasks:
            task.cancel()
        for session in self._sessions.values():
            session.end(error)
        self._sessions.clear()

    async def connect(self, hello: BrokerHello) -> BrokerConnection:
        """Resume the session that ``hello`` names, or establish a new one.

        The connection's first message is the answer, sent once the session is committed. If the
        broker goes away before, the session begins all the same, and ends by silence.

        Raises:
            InvalidRequest: The hello is malformed.
            StaleShardMap: The broker's slot is in another shard.
            NotLeader, Overloaded, ProposalLost: See ``ReplicatedLog.propose``.
        """
        self._check_open()
        check_hello(hello)
        self._state.slots.check_key(hello.broker_id)
        session = self._sessions.get(hello.session_id)
        resumed = session is not None and is_resumable(session, hello)
        if session is None or not resumed:
            session = await self._begin(hello)
        connection = BrokerConnection(session)
        last_sequence = hello.last_sequence if resumed else 0
        session.take_hello(hello)
        session.heard_at = self._clock.monotonic()
        if not session.attached.is_set():
            self._came_at = session.heard_at
        session.attach(connection, last_sequence)
        established = established_message(session, resumed, last_sequence)
        connection.answer(ManagerMessage(established=established))
        _logger.info(
            "broker connected",
            shard=self._shard_id,
            broker=hello.broker_id,
            epoch=session.record.epoch,
            resumed=resumed,
            last_sequence=last_sequence,
        )
        return connection

    def receive(self, connection: BrokerConnection, message: BrokerMessage) -> None:
        """Apply one message that followed the hello.

        Raises:
            InvalidRequest: It has no body, is a second hello, or is too large.
        """
        session = connection.session
        if session.ended is not None:
            # The stream is ending; its messages are not about the next session.
            return
        session.heard_at = self._clock.monotonic()
        match message.WhichOneof("body"):
            case "heartbeat":
                self._heartbeat(connection, message.heartbeat)
            case "sync":
                session.acknowledge(message.sync.sequence)
                self._metadata.deliver_waiting(session)
                self._metadata.synced()
            case "held":
                self._take_report(session, message.held)
            case "idle":
                self.on_idle(session.record, message.idle)
            case "drained":
                self.on_drained(session.record, message.drained)
            case "loads":
                self.on_loads(session.record, message.loads)
            case "drain":
                self.on_drain_wish(session.record, message.drain)
            case "goodbye":
                self._run(self._end(session, REASON_CLOSED))
            case _:
                raise InvalidRequest(
                    "a broker sends hello once, then heartbeat, sync, held metadata or goodbye"
                )

    async def carry_out(self, command: SetDrain | SetCapacity) -> BrokerRecorded:
        """Decide ``command`` about a live session; report the change once it is committed.

        The work continues if the caller goes away.

        Raises:
            SessionExpired: It is not the broker's live one.
            Refused: The rules say no.
            NotLeader, Overloaded, ProposalLost: See ``ReplicatedLog.propose``.
        """
        self._check_open()
        return await asyncio.shield(self._see_through(self._change(command)))

    def disconnect(self, connection: BrokerConnection) -> None:
        """Note that a stream broke: the session ends unless the broker is back soon.

        Has no effect if this leader closed the stream, or if the broker has another stream already.
        """
        session = connection.session
        if session.detach(connection, self._clock.monotonic()) and session.ended is None:
            self._look_at(session, session.deadline)
            self._schedule()

    def statuses(self) -> list[BrokerSessionStatus]:
        """Return one line per live session."""
        now, shard_id = self._clock.monotonic(), self._shard_id
        return [status_of(shard_id, each, now) for each in self._sessions.values()]

    def live(self, broker_id: str, session_id: str) -> SessionSoftState:
        """Return the broker's live session.

        Raises:
            SessionExpired: The live session is another one, or there is none.
            StaleShardMap: The broker's slot is in another shard.
        """
        self._check_open()
        session = self._sessions.get(session_id)
        if session is None or session.record.broker_id != broker_id:
            self._state.slots.check_key(broker_id)
            raise SessionExpired(f"session {session_id} is not the live one of {broker_id}")
        return session

    async def attached(self, broker_id: str, session_id: str) -> SessionSoftState:
        """Return the live session once its broker was connected to this leader.

        Raises:
            SessionExpired: The live session is another one, or ended before.
        """
        session = self.live(broker_id, session_id)
        await session.attached.wait()
        if session.ended is not None:
            raise session.ended
        return session

    # Inside -----------------------------------------------------------------------------------

    async def _change(self, command: SetDrain | SetCapacity) -> BrokerRecorded:
        session = self.live(command.broker_id, command.session_id)
        state = self._load(command.broker_id)
        decision = broker_session.decide(state, command)
        if isinstance(decision, Rejected):
            await self._state.proposer.confirm()
            raise session_rejection(decision)
        for event in decision.events:
            state = broker_session.evolve(state, event)
        assert state is not None, "a change was accepted for a broker that was never seen"
        record = to_recorded(state)
        if decision.events:
            await self._propose(command.broker_id, decision.events)
        else:
            await self._state.proposer.confirm()
        self._check_open()
        if record.revision > session.record.revision and session.ended is None:
            session.record = record
            self._reports.report(record)
        return record

    async def _begin(self, hello: BrokerHello) -> SessionSoftState:
        """Return a new session of the broker; concurrent requests for it get the same one."""
        earlier = self._beginning.get(hello.broker_id)
        if earlier is not None and is_same_broker(earlier[0], hello):
            work = earlier[1]
        else:
            work = self._see_through(self._establish(hello))
            self._beginning[hello.broker_id] = (hello, work)
            work.add_done_callback(lambda done: self._begun(hello.broker_id, done))
        session = await asyncio.shield(work)
        if session.ended is not None:
            raise session.ended
        return session

    def _begun(self, broker_id: str, work: asyncio.Task[SessionSoftState]) -> None:
        if self._beginning.get(broker_id, (None, None))[1] is work:
            del self._beginning[broker_id]

    async def _establish(self, hello: BrokerHello) -> SessionSoftState:
        if len(self._sessions) >= SESSIONS_PER_SHARD_MAX:
            raise Overloaded(f"shard {self._shard_id} has {SESSIONS_PER_SHARD_MAX} broker sessions")
        session_id = self._state.ids.mint(hello.broker_id)
        before = self._load(hello.broker_id)
        at_ms, least_epoch = self._clock.wall_ms(), self._state.least_epoch
        command = session_command(hello, session_id, at_ms, least_epoch)
        decision = broker_session.decide(before, command)
        if isinstance(decision, Rejected):
            raise session_rejection(decision)
        await self._propose(hello.broker_id, decision.events)
        self._check_open()
        if before is not None and before.is_live:
            self._forget(before.session_id, "the broker registered anew")
        session = self._load(hello.broker_id)
        if session is None or session.session_id != session_id:
            raise SessionExpired(f"{hello.broker_id} registered again at the same time")
        added = self._add(to_recorded(session), self._clock.monotonic())
        self._reports.report(added.record)
        return added

    async def _end(self, session: SessionSoftState, reason: str) -> None:
        record = session.record
        command = EndSession(record.broker_id, record.session_id, reason)
        decision = broker_session.decide(self._load(record.broker_id), command)
        if isinstance(decision, Rejected) or not decision.events:
            return
        try:
            await self._propose(record.broker_id, decision.events)
        except MetadataError as error:
            # The next leader finds the session silent and ends it.
            _logger.info("session end not recorded", broker=record.broker_id, why=str(error))
            return
        _logger.info(
            "broker session ended", shard=self._shard_id, broker=record.broker_id, reason=reason
        )
        self._forget(record.session_id, f"the session ended ({reason})")

    def _add(self, record: BrokerRecorded, heard_at: float) -> SessionSoftState:
        session = SessionSoftState(record, heard_at)
        self._sessions[record.session_id] = session
        self._look_at(session, session.deadline)
        self._schedule()
        return session

    def _look_at(self, session: SessionSoftState, when: float) -> None:
        """Check at ``when`` whether the session is overdue; replaces any planned check."""
        session.looked_at_next = when
        heapq.heappush(self._deadlines, (when, session.record.session_id))

    def _forget(self, session_id: str, why: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        session.end(SessionExpired(f"{session.record.broker_id}: {why}"))
        self.loads.forget(session_id)
        self._metadata.drop_all(session)
        ended = BrokerRecorded()
        ended.CopyFrom(session.record)
        ended.is_live = False
        self._reports.report(ended)

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deadlines and self._closed is None:
            self._timer = self._clock.call_at(self._deadlines[0][0], self._end_overdue)

    def _end_overdue(self) -> None:
        """End overdue sessions; plan a check of each other one for its deadline."""
        self._timer = None
        now = self._clock.monotonic()
        while self._deadlines and self._deadlines[0][0] <= now:
            when, session_id = heapq.heappop(self._deadlines)
            session = self._sessions.get(session_id)
            if session is None or session.looked_at_next != when:
                continue
            # This process itself was stalled: the broker's messages may be unread.
            is_late = now - when > SESSION_RESUME_MS / 1000
            if session.broken_at is not None and is_late:
                session.broken_at = now
            if session.broken_at is not None and not session.attached.is_set():
                # While other brokers still connect, this one's hello may be unread.
                session.broken_at = max(session.broken_at, self._came_at)
            if session.deadline > now:
                self._look_at(session, session.deadline)
                continue
            if is_late and session.excuse():
                self._look_at(session, now + SESSION_HEARTBEAT_MS / 1000)
                continue
            # Check again later, in case recording its end fails while this replica still leads.
            self._look_at(session, now + SESSION_TTL_MS / 1000)
            self._run(self._end(session, session.end_reason))
        self._schedule()

    def _take_report(self, session: SessionSoftState, held: HeldMetadata) -> None:
        """Apply a broker's report of its holding; end its session if that cannot be watched."""
        check_held(held)
        try:
            self._metadata.take_report(session, held)
        except Overloaded as error:
            _logger.error("broker session refused", broker=session.record.broker_id, why=str(error))
            self._look_at(session, session.deadline)
            self._schedule()
        if not session.metadata.awaits_report:
            session.reported.set()

    def _heartbeat(self, connection: BrokerConnection, heartbeat: BrokerHeartbeat) -> None:
        refused = ""
        if heartbeat.HasField("load"):
            refused = self.loads.take(connection.session, heartbeat.load)
        ack = HeartbeatAck(sent_at_ms=heartbeat.sent_at_ms, load_refused=refused)
        connection.answer(ManagerMessage(heartbeat_ack=ack))

    def _report_all(self) -> None:
        """Report the latest session of every broker: an end may have been missed as well."""
        if self._state.term.is_over:
            return
        for session in self._state.scans.sessions():
            # One that is being decided is reported when that is committed.
            if session.broker_id not in self._undecided:
                self._reports.report(to_recorded(session))
        for live in self._sessions.values():
            self.loads.report_again(live)

    async def _propose(
        self, broker_id: str, events: Sequence[broker_session.BrokerSessionEvent]
    ) -> None:
        self._undecided[broker_id] = self._undecided.get(broker_id, 0) + 1
        try:
            await self._state.proposer.propose(events)
        finally:
            self._undecided[broker_id] -= 1
            if not self._undecided[broker_id]:
                del self._undecided[broker_id]

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

    def _load(self, broker_id: str) -> BrokerSession | None:
        return self._state.reads.load_session(broker_id)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        start("broker_session_work", work, self._tasks)

    def _see_through(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run ``work`` to its end even if the caller is cancelled: a proposal may be committed."""
        return start("session_decision", work, self._decisions, expected=MetadataError)
