"""Passes the steps of a session to the plug-in, and answers its lookups."""

from __future__ import annotations

import asyncio
from typing import Any

from brokers.domain.holding import Assignment, Release
from brokers.domain.session import ChangedMetadata
from brokers.ports.plugin import LookupRequest, PluginConnection
from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.limits.stream import PLUGIN_LOOKUPS_MAX
from nextgen.kernel.routing.names import InvalidName, parse_topic
from nextgen.pulsar.metadata_commands import TopicDirectory
from nextgen.tasks.background import cancel_and_wait, start


class StockUnits:
    """The ``HoldingListener`` of a stock broker. ``close`` it at the end."""

    def __init__(self, plugin: PluginConnection, directory: TopicDirectory) -> None:
        self._plugin = plugin
        self._directory = directory
        self._lookups: set[asyncio.Task[Any]] = set()

    def assigned(self, assignment: Assignment) -> None:
        self._plugin.assign(assignment)

    def released(self, release: Release) -> None:
        self._plugin.release(release)

    def prepare(self, assignment: Assignment) -> None:
        """Nothing is prepared: opening a managed ledger fences its present owner."""

    def metadata_changed(self, changed: ChangedMetadata) -> None:
        """Stock brokers have their policies from their own metadata store."""

    def session_began(self) -> None:
        """Do nothing: ``SyncedDialer`` has announced the session to the plug-in already."""

    def look_up(self, request: LookupRequest) -> None:
        """Answer a lookup, soon. One of more than ``PLUGIN_LOOKUPS_MAX`` is refused at once."""
        if len(self._lookups) >= PLUGIN_LOOKUPS_MAX:
            self._plugin.refused(
                request.number, "OVERLOADED", "too many lookups are pending", is_final=False
            )
            return
        start("plugin_lookup", self._answer(request), self._lookups)

    async def close(self) -> None:
        """Give up the lookups under way."""
        await cancel_and_wait(*self._lookups)

    async def _answer(self, request: LookupRequest) -> None:
        try:
            located = await self._directory.locate(parse_topic(request.topic), create=True)
        except InvalidName as error:
            self._plugin.refused(request.number, "INVALID_NAME", str(error), is_final=True)
        except Refused as error:
            self._plugin.refused(request.number, error.code, str(error), is_final=True)
        except MetadataError as error:
            self._plugin.refused(request.number, error.reason, str(error), is_final=False)
        else:
            self._plugin.located(request.number, located)
