"""The life of a sidecar: a session for as long as its stock broker runs.

connect to the plug-in ──▶ session, steps, lookups ──▶ plug-in lost ──▶ goodbye ──▶ connect ...

A broker that dies, or is silent for ``PLUGIN_SILENCE_MS_MAX``, loses its session at once: the
goodbye frees its topics for others. If this process dies, the broker manager notices by itself, and
the plug-in refuses all topics when the session's time-out has passed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from brokers.ports.plugin import (
    LoadMeasured,
    LookupRequest,
    PluginConnection,
    PluginDialer,
    PluginLost,
    Synced,
)
from brokers.ports.session import Clock, ManagerDialer
from brokers.service.session.agent import BrokerAgent
from brokers.service.sidecar.stock_units import StockUnits
from brokers.service.sidecar.synced_dialer import PluginSync, SyncedDialer
from nextgen.kernel.governance.broker_load import BrokerLoad
from nextgen.kernel.limits.stream import PLUGIN_SILENCE_MS_MAX
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
        load: ReportedLoad,
    ) -> None:
        """``managers`` returns what dials broker managers for a connected plug-in."""
        self._plugins = plugins
        self._managers = managers
        self._agent = agent
        self._directory = directory
        self._load = load
        self.plugins_lost = 0
        """Connections to plug-ins that ended, by whatever side."""

    async def run(self) -> None:
        """Keep sessions until cancelled, then end the present one cleanly."""
        while True:
            plugin = await self._plugins.connect()
            _logger.info("plug-in connected", greeting=repr(plugin.greeting))
            try:
                await self._serve(plugin)
            except PluginLost as error:
                self.plugins_lost += 1
                _logger.warning("plug-in lost, its session ends", why=str(error))
            finally:
                plugin.close()

    async def _serve(self, plugin: PluginConnection) -> None:
        """Keep a session until the plug-in is lost."""
        sync = PluginSync(plugin)
        units = StockUnits(plugin, self._directory)
        self._agent.use(SyncedDialer(self._managers(plugin), plugin, sync), units)
        try:
            # The agent says goodbye when it is cancelled.
            await run_until_first(self._agent.run(), self._read(plugin, sync, units))
        finally:
            await units.close()

    async def _read(self, plugin: PluginConnection, sync: PluginSync, units: StockUnits) -> None:
        while True:
            try:
                async with timeout(PLUGIN_SILENCE_MS_MAX / 1_000):
                    message = await plugin.receive()
            except TimeoutError:
                raise PluginLost(f"silent for {PLUGIN_SILENCE_MS_MAX} ms") from None
            match message:
                case LookupRequest():
                    units.look_up(message)
                case Synced(number):
                    sync.confirmed(number)
                case LoadMeasured(load):
                    self._load.take(load)
