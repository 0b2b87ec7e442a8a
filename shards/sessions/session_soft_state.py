"""The soft state of one broker session at its broker manager.

It is the state of one leader: when the broker was last heard from, when its stream broke, the dense
sequence of deliveries, the unsynced ones, and the callers that wait for a sync. A new leader counts
every session as heard from when it takes over. When every node knows the leader, each broker has
``SESSION_RETURN_MS`` to connect. The sequence continues at the broker's sync position, metadata is
sent again, and controllers repeat the requests whose answer they missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from nextgen.kernel.errors import MetadataError, Overloaded, Refused, SessionExpired
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import (
    DELIVERIES_BYTES_MAX,
    DELIVERIES_PER_MESSAGE_MAX,
    DELIVERIES_UNACKED_MAX,
    SESSION_RESUME_MS,
    SESSION_RETURN_MS,
    SESSION_TTL_MS,
)
from protos.nextgen.v1.broker_service_pb2 import BrokerHello, Deliveries, Delivery, ManagerMessage
from protos.nextgen.v1.events_pb2 import BrokerRecorded, LoadReport
from protos.nextgen.v1.shard_service_pb2 import TopicAssignment
from shards.domain.broker_session import (
    REASON_DISCONNECTED,
    REASON_EXPIRED,
    REASON_NOT_FOLLOWED,
)
from shards.sessions.session_metadata import SessionMetadata


class SessionSoftState:
    """One live session, as its present leader sees it."""

    def __init__(self, record: BrokerRecorded, heard_at: float) -> None:
        self.record = record
        """Identity, endpoints and capacity, as they are in the log."""
        self.heard_at = heard_at
        self.load = LoadReport()
        self.sequence = 0
        """Number of the last delivery."""
        self.acked = 0
        """Everything up to it was applied by the broker."""
        self.connection: BrokerConnection | None = None
        self.broken_at: float | None = None
        """When the broker's last connection to this leader broke, or, before the first, when it
        could know where this leader is; None while there is one, and until then."""
        self.looked_at_next = 0.0
        """When the leader looks next whether its time is up."""
        self._excused_at: float | None = None
        """When the broker was last heard from before an excused silence."""
        self.attached = asyncio.Event()
        """Set once the broker connected here: only then is its sequence known."""
        self.reported = asyncio.Event()
        """Set once it is known what the broker holds; at the end of the session as well."""
        self.ended: MetadataError | None = None
        self._unacked: dict[int, Delivery] = {}
        self.metadata = SessionMetadata(self)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __repr__(self) -> str:
        return (
            f"<SessionSoftState {self.record.broker_id} epoch={self.record.epoch} "
            f"sent={self.sequence} acked={self.acked} connected={self.connection is not None}>"
        )

    @property
    def deadline(self) -> float:
        """When the session ends, unless a heartbeat or a reconnect comes before."""
        if self.metadata.is_refused:
            return self.heard_at
        silent_until = self.heard_at + SESSION_TTL_MS / 1000
        if self.broken_at is None:
            return silent_until
        patience_ms = SESSION_RESUME_MS if self.attached.is_set() else SESSION_RETURN_MS
        return min(silent_until, self.broken_at + patience_ms / 1000)

    @property
    def end_reason(self) -> str:
        """Why the session ends at its ``deadline``: the reason in its event."""
        if self.metadata.is_refused:
            return REASON_NOT_FOLLOWED
        return REASON_EXPIRED if self.broken_at is None else REASON_DISCONNECTED

    def excuse(self) -> bool:
        """Return whether to check a silent, connected broker again before its session ends.

        True once for each silence: this leader may have been stalled itself.
        """
        if self.broken_at is not None or self._excused_at == self.heard_at:
            return False
        self._excused_at = self.heard_at
        return True

    def can_resume(self, last_sequence: int) -> bool:
        """Return whether a broker with the sync position ``last_sequence`` can resume."""
        return not self.attached.is_set() or self.acked <= last_sequence <= self.sequence

    def take_hello(self, hello: BrokerHello) -> None:
        """Apply the number of units in a broker's hello, unless it is known; call before
        ``attach``."""
        if self.metadata.awaits_report:
            is_counted = hello.HasField("units_held")
            self.metadata.units_unreported = hello.units_held if is_counted else None

    def attach(self, connection: BrokerConnection, last_sequence: int) -> None:
        """Make ``connection`` the session's only one; unapplied deliveries are sent on it again."""
        assert self.can_resume(last_sequence), "the broker skipped or forgot deliveries"
        if self.connection is not None:
            self.connection.fail(SessionExpired("the session was resumed on another connection"))
        if not self.attached.is_set():
            self.sequence = self.acked = last_sequence
        self.connection = connection
        self.broken_at = None
        connection.cursor = last_sequence
        self.acknowledge(last_sequence)
        self.attached.set()
        connection.changed.set()

    def detach(self, connection: BrokerConnection, now: float) -> bool:
        """Note that a connection broke; return whether the broker now has none.

        The session lives on until its ``deadline``.
        """
        if self.connection is not connection:
            return False
        self.connection = None
        self.broken_at = now
        return True

    @property
    def unsynced(self) -> int:
        """Number of deliveries that the broker has not synced."""
        return len(self._unacked)

    async def wait_room(self, assignments: Sequence[TopicAssignment]) -> None:
        """Return if the broker has room for these units; no await follows the last check.

        Raises:
            Refused: NO_CAPACITY: it would have more units than its capacity; with the room it has.
            SessionExpired: The session ended before the broker reported its holding.
        """
        capacity_units = self.record.capacity_units
        while self.ended is None:
            added = self.metadata.units_added(assignments)
            units = self.metadata.units
            # Units that the broker has already may be sent again, however full it is.
            if not added or (units is not None and units + added <= capacity_units):
                return
            if not self.metadata.awaits_report:
                raise Refused(
                    RejectionCode.NO_CAPACITY,
                    f"broker {self.record.broker_id} has {units} of {capacity_units} units, "
                    f"there is no room for {added} more",
                    room=None if units is None else max(0, capacity_units - units),
                )
            await self.reported.wait()
        raise self.ended

    def check_room(self, count: int) -> None:
        """Check that the given number of further deliveries fits.

        Raises:
            Overloaded: The broker has not synced ``DELIVERIES_UNACKED_MAX`` of them.
        """
        if len(self._unacked) + count > DELIVERIES_UNACKED_MAX:
            raise Overloaded(
                f"{self.record.broker_id} has not synced {len(self._unacked)} deliveries"
            )

    def append(self, delivery: Delivery) -> int:
        """Give ``delivery`` the next sequence, queue it, and return that sequence."""
        assert self.attached.is_set(), "the sequence of this session is not known yet"
        self.sequence += 1
        delivery.sequence = self.sequence
        self._unacked[self.sequence] = delivery
        if self.connection is not None:
            self.connection.changed.set()
        return self.sequence

    def acknowledge(self, sequence: int) -> None:
        """Drop the deliveries that the broker applied, and answer the callers that waited."""
        sequence = min(sequence, self.sequence)
        for applied in range(self.acked + 1, sequence + 1):
            self._unacked.pop(applied, None)
        self.acked = max(self.acked, sequence)
        while self._waiting and self._waiting[0][0] <= self.acked:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)

    async def wait_synced(self, sequence: int) -> None:
        """Return once the broker's sync position covers ``sequence``.

        Raises:
            SessionExpired: The session ended first.
            MetadataError: This replica stopped leading first.
        """
        if self.ended is not None:
            raise self.ended
        if sequence <= self.acked:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((sequence, future))
        await future

    def end(self, error: MetadataError) -> None:
        """Fail all waiting callers, and the connection, with ``error``."""
        self.ended = error
        self.attached.set()
        self.reported.set()
        if self.connection is not None:
            self.connection.fail(error)
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)

    def deliveries_after(self, cursor: int) -> list[Delivery]:
        """Return the deliveries behind ``cursor``, in order, as many as one message may carry."""
        taken: list[Delivery] = []
        size = 0
        last = min(self.sequence, cursor + DELIVERIES_PER_MESSAGE_MAX)
        for sequence in range(max(cursor, self.acked) + 1, last + 1):
            delivery = self._unacked[sequence]
            size += delivery.ByteSize()
            if taken and size > DELIVERIES_BYTES_MAX:
                break
            taken.append(delivery)
        return taken


class BrokerConnection:
    """One stream of one broker. The adapter sends what ``take_messages`` returns, in order."""

    def __init__(self, session: SessionSoftState) -> None:
        self.session = session
        self.cursor = 0
        """Sequence of the last delivery that was handed to this connection."""
        self.changed = asyncio.Event()
        """Set when ``take_messages`` has something."""
        self.error: MetadataError | None = None
        self._answers: list[ManagerMessage] = []

    def __repr__(self) -> str:
        return f"<BrokerConnection {self.session.record.broker_id} sent={self.cursor}>"

    def answer(self, message: ManagerMessage) -> None:
        """Queue a message that is no delivery. At most one is made per message received, or per
        drained unit in it."""
        self._answers.append(message)
        self.changed.set()

    def fail(self, error: MetadataError) -> None:
        """End the stream with ``error``, behind the queued messages."""
        if self.error is None:
            self.error = error
            self.changed.set()

    def take_messages(self) -> list[ManagerMessage]:
        """Return the messages to send at this moment, in order."""
        self.changed.clear()
        messages, self._answers = self._answers, []
        deliveries = self.session.deliveries_after(self.cursor)
        if deliveries:
            self.cursor = deliveries[-1].sequence
            messages.append(ManagerMessage(deliveries=Deliveries(deliveries=deliveries)))
        # What the broker applied from an earlier connection is not sent again: without this, a
        # sender with nothing to send would be woken again and again.
        self.cursor = max(self.cursor, self.session.acked)
        if self.cursor < self.session.sequence:
            self.changed.set()
        return messages
