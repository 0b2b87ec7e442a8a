"""The life of a sidecar: a session for as long as its stock broker runs.

connect to the plug-in ──▶ session, steps, lookups ──▶ plug-in lost ──▶ goodbye ──▶ connect ...
                              ▲ load, open topics, deletions

A broker that dies, or is silent for ``PLUGIN_SILENCE_MS_MAX``, loses its session at once: the
goodbye frees its topics for others. If this process dies, the broker manager notices by itself, and
the plug-in refuses all topics when the session's time-out has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from brokers.domain.holding import Release
from brokers.ports.plugin import (
    AbsentReported,
    DeletedReported,
    ForeignClosed,
    FromPlugin,
    LoadMeasured,
    LookupRequest,
    OpenTopics,
    Ping,
    PluginAlive,
    PluginConnection,
    PluginDialer,
    PluginFault,
    PluginGreeting,
    PluginLost,
    Synced,
    TopicsReported,
)
from brokers.ports.session import Clock, ManagerDialer
from brokers.service.session.agent import BrokerAgent
from brokers.service.sidecar.handover import Handover
from brokers.service.sidecar.plugin_faults import PluginFaults
from brokers.service.sidecar.stock_topics import StockTopics
from brokers.service.sidecar.stock_units import KindOfBroker, StockUnits
from brokers.service.sidecar.synced_dialer import PluginSync, SyncedDialer
from brokers.service.sidecar.topic_removals import TopicRemovals
from nextgen.kernel.governance.broker_load import BrokerLoad
from nextgen.kernel.limits.cluster import STORED_INTEGER_MAX
from nextgen.kernel.limits.stream import PLUGIN_SILENCE_MS_MAX, PLUGIN_TOPICS_NAMED_MAX
from nextgen.pulsar.metadata_commands import TopicDirectory
from nextgen.tasks.first_to_end import run_until_first
from nextgen.tasks.timeouts import timeout

_logger = structlog.get_logger(__name__)


class ReportedLoad:
    """The load that the plug-in measured last; called by the agent at its heartbeats."""

    def __init__(self, wall_clock: Clock) -> None:
        self._wall_clock = wall_clock
        self._measured_at_ms = 0
        self._load = BrokerLoad()

    def take(self, load: BrokerLoad) -> None:
        self._load = load

    def __call__(self) -> BrokerLoad:
        # The report with the later time wins, so it must grow even if the wall clock is set back.
        self._measured_at_ms = max(self._measured_at_ms + 1, self._wall_clock())
        return replace(self._load, measured_at_ms=self._measured_at_ms)


class Sidecar:
    """Keeps the session of one stock broker, from connection to connection of its plug-in."""

    def __init__(
        self,
        *,
        plugins: PluginDialer,
        managers: Callable[[PluginConnection], ManagerDialer],
        agent: BrokerAgent,
        directory: TopicDirectory,
        kind_of: KindOfBroker,
        load: ReportedLoad,
        topics: StockTopics,
        removals: TopicRemovals,
        faults: PluginFaults,
        clock: Clock,
        handover: Handover,
    ) -> None:
        """``managers`` returns what dials broker managers for a connected plug-in."""
        self._plugins = plugins
        self._managers = managers
        self._agent = agent
        self._directory = directory
        self._kind_of = kind_of
        self._load = load
        self._topics = topics
        self.removals = removals
        self.faults = faults
        self._clock = clock
        self.handover = handover
        self.greeting: PluginGreeting | None = None
        """The broker that is commanded; None: none is connected."""

    def __repr__(self) -> str:
        return f"<Sidecar broker={self.greeting!r} {self.faults!r} {self._topics!r}>"

    @property
    def web_urls(self) -> str:
        """Where the Admin REST of the broker is, "" while it is not connected."""
        return "" if self.greeting is None else self.greeting.web

    async def run(self) -> None:
        """Keep sessions until cancelled, then end the present one cleanly."""
        while True:
            plugin = await self._plugins.connect()
            self.greeting = plugin.greeting
            _logger.info("plug-in connected", greeting=repr(plugin.greeting))
            try:
                await self._serve(plugin)
            except PluginLost as error:
                self.faults.note(error.fault, f"{error}; its session ends")
            finally:
                self.greeting = None
                plugin.close()

    async def _serve(self, plugin: PluginConnection) -> None:
        """Keep a session until the plug-in is lost."""
        sync = PluginSync(plugin, self._clock)
        units = StockUnits(plugin, self._directory, self._kind_of, self.faults)
        self._topics.begin_anew()
        self._agent.use(SyncedDialer(self._managers(plugin), plugin, sync), units)
        self.handover.connected(plugin)
        try:
            # The agent says goodbye when it is cancelled.
            await run_until_first(
                self._agent.run(), self._read(plugin, sync, units), self.removals.run()
            )
        finally:
            self.handover.lost()
            await units.close()

    async def _read(self, plugin: PluginConnection, sync: PluginSync, units: StockUnits) -> None:
        while True:
            try:
                async with timeout(PLUGIN_SILENCE_MS_MAX / 1_000):
                    message = await plugin.receive()
            except TimeoutError:
                raise PluginLost(
                    f"the plug-in is silent for {PLUGIN_SILENCE_MS_MAX} ms", PluginFault.SILENT
                ) from None
            self._take(message, plugin, sync, units)

    def _take(
        self, message: FromPlugin, plugin: PluginConnection, sync: PluginSync, units: StockUnits
    ) -> None:
        match message:
            case LookupRequest():
                units.look_up(message)
            case Ping(number):
                plugin.pong(number)
            case Synced(number):
                sync.confirmed(number)
            case LoadMeasured(load):
                self._load.take(load)
                self._close_strays(plugin)
            case TopicsReported():
                self._topics.take(message)
            case AbsentReported(topics):
                self.faults.note(
                    PluginFault.ABSENT_TOPIC,
                    # What helps comes first: a long line of the log is cut.
                    "Pulsar has no such topic and creates none, or has it with partitions, see "
                    f"'nextgen adopt plan': {_named(topics)}",
                )
            case DeletedReported(topics):
                self.removals.add(topics)
            case OpenTopics() | ForeignClosed():
                self.handover.take(message)
            case PluginAlive():
                sync.check()

    def _close_strays(self, plugin: PluginConnection) -> None:
        """Have the broker close what it should not have open. It acknowledges nothing there once
        the owner has opened the topic: that is what ledgers are for (ADR 0178)."""
        strays = self._topics.disobeyed()
        if strays:
            self.faults.note(
                PluginFault.NOT_RELEASED,
                f"the broker has {_named(strays)} open, not assigned to it; it is told again",
            )
        for name in strays:
            plugin.release(Release("", "", name, STORED_INTEGER_MAX, "", 0, "", ""))


def _named(topics: Sequence[str]) -> str:
    shown = ", ".join(topics[:PLUGIN_TOPICS_NAMED_MAX])
    more = len(topics) - PLUGIN_TOPICS_NAMED_MAX
    return f"{shown} and {more} more" if more > 0 else shown
