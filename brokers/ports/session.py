"""The ports of the broker agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from brokers.domain.holding import Assignment, Holding
from brokers.domain.session import Delivered, Established
from nextgen.kernel.governance.broker_load import BrokerLoad, Rates


@dataclass(frozen=True, slots=True)
class ManagerLocation:
    """The address of this broker's manager: ``endpoint`` leads its shard in ``term``."""

    endpoint: str
    term: int


@dataclass(frozen=True, slots=True)
class Timing:
    """The manager's intervals and time-outs for the session."""

    session_ttl_ms: int
    heartbeat_ms: int


@dataclass(frozen=True, slots=True)
class DrainedUnit:
    """A durable subscription has acknowledged everything in a terminated unit."""

    topic_id: str
    unit: str
    name: str
    """Canonical, partition or segment included."""
    epoch: int
    subscription: str


@dataclass(frozen=True, slots=True)
class SegmentTraffic:
    """The rates of one segment of a scalable topic: as measured, or as its shard has them."""

    topic_id: str
    unit: str
    name: str
    epoch: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class Greeting:
    """The manager's answer to a hello."""

    established: Established
    timing: Timing
    wants_held: bool = False
    """The manager does not know the session's holding, and the broker has to report it."""
    takes_drained: bool = False
    """The manager knows reports of drained units: one of an earlier release does not."""
    takes_loads: bool = False
    """Likewise of segments' loads."""


@dataclass(frozen=True, slots=True)
class HeartbeatEcho:
    """The manager got a heartbeat that was sent at ``sent_at_ms``, by this process's clock."""

    sent_at_ms: int
    load_refused: str = ""
    """Why the load in it was refused; empty if it was not."""


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """The manager ended the stream. ``leader_hint`` is empty if it does not know the leader."""

    reason: str
    message: str
    leader_hint: str


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The connection broke or was closed."""

    message: str


@dataclass(frozen=True, slots=True)
class DrainedSettled:
    """These drained units need not be reported any more."""

    units: Sequence[DrainedUnit]


@dataclass(frozen=True, slots=True)
class LoadsRecorded:
    """What the shards of these segments have on record."""

    segments: Sequence[SegmentTraffic]


FromManager = (
    Greeting | Delivered | HeartbeatEcho | DrainedSettled | LoadsRecorded | TurnedAway | StreamEnded
)


class ManagerConnection(Protocol):
    """One open stream to a broker manager. Of each kind of report only the latest is queued, except
    for drained units."""

    async def receive(self) -> FromManager:
        """Return the next arrival. ``TurnedAway`` and ``StreamEnded`` are the last one."""
        ...

    def report_sync(self, sequence: int) -> None:
        """Report as soon as possible that everything up to ``sequence`` is applied."""
        ...

    def heartbeat(self, load: BrokerLoad | None) -> None:
        """Send a heartbeat, with ``load`` if it is given."""
        ...

    def report_held(self, holding: Holding) -> None:
        """Report the holding, in pages, when nothing more urgent is pending."""
        ...

    def report_idle(self, units: Sequence[Assignment]) -> None:
        """Report that these units are idle, at most ``IDLE_UNITS_PER_MESSAGE_MAX``."""
        ...

    def report_drained(self, units: Sequence[DrainedUnit]) -> None:
        """Report drained units, together with others that are pending."""
        ...

    def report_loads(self, segments: Sequence[SegmentTraffic]) -> None:
        """Report loads of segments, at most ``SEGMENT_LOADS_PER_REPORT_MAX``."""
        ...

    def ask_drain(self, units_per_second: int) -> None:
        """Request a drain of this broker."""
        ...

    async def say_goodbye(self) -> None:
        """Request the end of the session, and wait a moment until the manager has got that."""
        ...

    def close(self) -> None:
        """Close the connection at once."""
        ...


class ManagerDialer(Protocol):
    """Opens connections to broker managers."""

    def dial(
        self, endpoint: str, session_id: str, last_sequence: int, units_held: int
    ) -> ManagerConnection:
        """Open a stream and send the hello; the first ``receive`` reports a failure.

        ``units_held`` is as of ``last_sequence``.
        """
        ...


class ManagerLocator(Protocol):
    """Knows the leader of the shard of this broker's id, from the cluster's state."""

    def location(self) -> ManagerLocation | None:
        """Return the presently known location."""
        ...

    async def wait_change(self, timeout_ms: int) -> None:
        """Return when ``location`` may have changed, or after ``timeout_ms``."""
        ...


LoadMeter = Callable[[], BrokerLoad]
Clock = Callable[[], int]
"""Milliseconds that never go backwards."""

Sleep = Callable[[float], Awaitable[None]]
"""Waits for seconds."""
