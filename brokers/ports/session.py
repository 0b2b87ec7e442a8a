"""What the broker agent needs from outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from brokers.domain.holding import Assignment, Holding
from brokers.domain.session import Delivered, Established
from nextgen.kernel.governance.broker_load import BrokerLoad


@dataclass(frozen=True, slots=True)
class ManagerLocation:
    """Where the broker manager of this broker is: ``endpoint`` leads its shard in ``term``."""

    endpoint: str
    term: int


@dataclass(frozen=True, slots=True)
class Timing:
    """How the manager wants the session kept."""

    session_ttl_ms: int
    heartbeat_ms: int


@dataclass(frozen=True, slots=True)
class Greeting:
    """The manager's answer to a hello."""

    established: Established
    timing: Timing
    wants_held: bool = False
    """The manager does not know what the session holds."""


@dataclass(frozen=True, slots=True)
class HeartbeatEcho:
    """The manager heard a heartbeat that was sent at ``sent_at_ms``, by this process's clock."""

    sent_at_ms: int
    load_refused: str = ""
    """Why the load in it cannot be."""


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """The manager ended the stream. ``leader_hint`` is empty when it knows no better place."""

    reason: str
    message: str
    leader_hint: str


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The connection broke or was closed."""

    message: str


FromManager = Greeting | Delivered | HeartbeatEcho | TurnedAway | StreamEnded


class ManagerConnection(Protocol):
    """One open stream to a broker manager. Reports are queued; only the latest of each counts."""

    async def receive(self) -> FromManager:
        """Return what arrives next. After ``TurnedAway`` or ``StreamEnded`` nothing does."""
        ...

    def report_sync(self, sequence: int) -> None:
        """Send that everything up to ``sequence`` is applied, as soon as possible."""
        ...

    def heartbeat(self, load: BrokerLoad | None) -> None:
        """Send a heartbeat, with ``load`` if it is given."""
        ...

    def report_held(self, holding: Holding) -> None:
        """Send what is held, in pages, when nothing more urgent is due."""
        ...

    def report_idle(self, units: Sequence[Assignment]) -> None:
        """Send that nobody uses these units, at most ``IDLE_UNITS_PER_MESSAGE_MAX``."""
        ...

    def ask_drain(self, units_per_second: int) -> None:
        """Ask the manager to have this broker emptied."""
        ...

    async def say_goodbye(self) -> None:
        """Ask the manager to end the session and wait a moment until it has heard that."""
        ...

    def close(self) -> None:
        """Give the connection up at once."""
        ...


class ManagerDialer(Protocol):
    """Opens connections to broker managers."""

    def dial(
        self, endpoint: str, session_id: str, last_sequence: int, units_held: int
    ) -> ManagerConnection:
        """Open a stream and send the hello; failure shows in the first ``receive``.

        ``units_held`` is as of ``last_sequence``.
        """
        ...


class ManagerLocator(Protocol):
    """Knows from the cluster's state who leads the shard of this broker's id."""

    def location(self) -> ManagerLocation | None:
        """Return the place as it is known at the moment."""
        ...

    async def wait_change(self, timeout_ms: int) -> None:
        """Return when ``location`` may have changed, or after ``timeout_ms``."""
        ...


LoadMeter = Callable[[], BrokerLoad]
Clock = Callable[[], int]
"""Milliseconds that never go backwards."""

Sleep = Callable[[float], Awaitable[None]]
"""Waits for seconds."""
