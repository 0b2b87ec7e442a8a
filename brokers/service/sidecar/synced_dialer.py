"""Sync positions of a broker that is another process.

    deliveries ─▶ session ─▶ assign, release, sync 7 ─▶ plug-in
    manager   ◀─ report_sync ◀──────────────────── synced 7

The sync position of a release or a preparation is reported when the plug-in has carried it out.
That of an assignment is reported as soon as it is written to the socket (ADR 0192): a client that
reaches the broker earlier waits there, as the plug-in sends a ping before it refuses anybody. A
plug-in that is silent gets no such credit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from brokers.domain.holding import Assignment, Holding, Prepare, Release
from brokers.domain.session import Delivered
from brokers.ports.plugin import PluginConnection, PluginFault, PluginLost
from brokers.ports.session import (
    Clock,
    DrainedUnit,
    FromManager,
    Greeting,
    HeartbeatEcho,
    ManagerConnection,
    ManagerDialer,
    SegmentTraffic,
)
from nextgen.kernel.governance.broker_load import BrokerLoad
from nextgen.kernel.limits.stream import PLUGIN_CONFIRM_MS_MAX, PLUGIN_PROMPT_MS_MAX


class _Pending(NamedTuple):
    number: int
    sent_at_ms: int
    callback: Callable[[], None]


class PluginSync:
    """Calls back once the plug-in has carried out everything that was sent before the call."""

    def __init__(self, plugin: PluginConnection, clock: Clock) -> None:
        self._plugin = plugin
        self._clock = clock
        self._last = 0
        self._heard_at_ms = clock()
        self._pending: deque[_Pending] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def is_prompt(self) -> bool:
        """Whether the plug-in was heard from a moment ago."""
        return self._clock() - self._heard_at_ms <= PLUGIN_PROMPT_MS_MAX

    def after_all(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the plug-in has confirmed all that was sent to it so far."""
        self._last += 1
        self._pending.append(_Pending(self._last, self._clock(), callback))
        self._plugin.sync(self._last)

    def confirmed(self, number: int) -> None:
        """Note that the plug-in has carried out everything up to this number.

        Raises:
            PluginLost: It was not sent yet.
        """
        if number > self._last:
            raise PluginLost(
                f"the plug-in confirms {number}, the last that it was sent is {self._last}"
            )
        self._heard_at_ms = self._clock()
        while self._pending and self._pending[0].number <= number:
            self._pending.popleft().callback()

    def check(self) -> None:
        """Note that the plug-in is alive; return if it confirms in time.

        Raises:
            PluginLost: It does not.
        """
        self._heard_at_ms = self._clock()
        if self._pending:
            waited_ms = self._clock() - self._pending[0].sent_at_ms
            if waited_ms > PLUGIN_CONFIRM_MS_MAX:
                raise PluginLost(
                    f"the plug-in has confirmed nothing for {PLUGIN_CONFIRM_MS_MAX} ms",
                    PluginFault.UNCONFIRMED,
                )


class SyncedDialer:
    """Connects to broker managers on behalf of a plug-in."""

    def __init__(self, dialer: ManagerDialer, plugin: PluginConnection, sync: PluginSync) -> None:
        self._dialer = dialer
        self._plugin = plugin
        self._sync = sync

    def dial(
        self, endpoint: str, session_id: str, last_sequence: int, units_held: int
    ) -> ManagerConnection:
        connection = self._dialer.dial(endpoint, session_id, last_sequence, units_held)
        return _SyncedConnection(connection, self._plugin, self._sync)


class _SyncedConnection:
    """A connection to a manager that tells the plug-in of the session and its heartbeats."""

    def __init__(
        self, connection: ManagerConnection, plugin: PluginConnection, sync: PluginSync
    ) -> None:
        self._connection = connection
        self._plugin = plugin
        self._sync = sync
        self._is_closed = False
        self._must_be_carried_out = False
        """Whether that holds of a step that came since the last report."""
        self._unreported = 0
        """Reports that wait for the plug-in."""

    async def receive(self) -> FromManager:
        arrived = await self._connection.receive()
        match arrived:
            case Greeting(established, timing):
                # Before the agent takes the greeting, so before any step of the session.
                self._plugin.session(
                    established.session_id, established.epoch, timing.session_ttl_ms
                )
            case HeartbeatEcho():
                self._plugin.alive()
            case Delivered(deliveries):
                self._must_be_carried_out |= any(
                    isinstance(each.payload, Prepare | Release) for each in deliveries
                )
        return arrived

    def report_sync(self, sequence: int) -> None:
        waits = self._must_be_carried_out or self._unreported > 0 or not self._sync.is_prompt
        self._must_be_carried_out = False
        if not waits:
            self._connection.report_sync(sequence)
            # A plug-in that does not read is found out all the same.
            self._sync.after_all(lambda: None)
            return
        self._unreported += 1

        def report() -> None:
            self._unreported -= 1
            if not self._is_closed:
                self._connection.report_sync(sequence)

        self._sync.after_all(report)

    def heartbeat(self, load: BrokerLoad | None) -> None:
        self._connection.heartbeat(load)

    def report_held(self, holding: Holding) -> None:
        self._connection.report_held(holding)

    def report_idle(self, units: Sequence[Assignment]) -> None:
        self._connection.report_idle(units)

    def report_drained(self, units: Sequence[DrainedUnit]) -> None:
        self._connection.report_drained(units)

    def report_loads(self, segments: Sequence[SegmentTraffic]) -> None:
        self._connection.report_loads(segments)

    def ask_drain(self, units_per_second: int) -> None:
        self._connection.ask_drain(units_per_second)

    async def say_goodbye(self) -> None:
        await self._connection.say_goodbye()

    def close(self) -> None:
        self._is_closed = True
        self._connection.close()
