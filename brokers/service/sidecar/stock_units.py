"""Passes the steps of a session to the plug-in, and answers its lookups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from brokers.domain.holding import Assignment, Release
from brokers.domain.session import ChangedMetadata
from brokers.ports.plugin import LookupRequest, PluginConnection, PluginFault
from brokers.service.sidecar.plugin_faults import PluginFaults
from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.broker_kind import BROKER_KIND_PROPERTY, BrokerKind, shown_kind
from nextgen.kernel.limits.stream import PLUGIN_LOOKUPS_MAX
from nextgen.kernel.routing.names import InvalidName, TopicName, parse_topic
from nextgen.pulsar.metadata_commands import Located, TopicDirectory
from nextgen.tasks.background import cancel_and_wait, start

KindOfBroker = Callable[[str], str | None]
"""Returns the kind of the broker of this id, None if it is not known."""


class StockUnits:
    """The ``HoldingListener`` of a stock broker. ``close`` it at the end."""

    def __init__(
        self,
        plugin: PluginConnection,
        directory: TopicDirectory,
        kind_of: KindOfBroker,
        faults: PluginFaults,
    ) -> None:
        self._plugin = plugin
        self._faults = faults
        self._directory = directory
        self._kind_of = kind_of
        self._lookups: set[asyncio.Task[Any]] = set()

    def assigned(self, assignment: Assignment) -> None:
        self._plugin.assign(assignment)

    def released(self, release: Release) -> None:
        self._plugin.release(release)

    def prepare(self, assignment: Assignment) -> None:
        # The plug-in opens nothing: opening a managed ledger fences its present owner.
        self._plugin.prepare(assignment)

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
            name = parse_topic(request.topic)
        except InvalidName as error:
            self._plugin.refused(request.number, "INVALID_NAME", str(error), is_final=True)
            return
        try:
            located = await self._directory.locate(name, create=True)
        except Refused as error:
            why = str(error)
            if error.code == RejectionCode.NOT_FOUND:
                why = f"{why}; {self._unknown(name)}"
            self._plugin.refused(request.number, error.code, why, is_final=True)
        except MetadataError as error:
            self._plugin.refused(request.number, error.reason, str(error), is_final=False)
        else:
            self._pass_on(request, located)

    def _unknown(self, name: TopicName) -> str:
        """Note that a topic is used which the cluster does not have and does not create: one with
        partitions, or any where the namespace forbids it. Return what brings it."""
        brought = f"if Pulsar has it, 'nextgen adopt run {name.namespace_text}' brings it"
        # Not the topic: one line a minute for a namespace, however many its clients look up.
        self._faults.note(
            PluginFault.UNKNOWN_TOPIC,
            f"{brought}: a topic is looked up that the cluster does not have",
        )
        return brought

    def _pass_on(self, request: LookupRequest, located: Located) -> None:
        """Pass an answer on, unless it leads clients of Pulsar away from Pulsar's messages."""
        kind = self._kind_of(located.broker_id)
        if kind == BrokerKind.STOCK:
            self._plugin.located(request.number, located)
        elif kind is None:
            why = f"broker {located.broker_id} is not known here yet"
            self._plugin.refused(request.number, "NO_BROKER", why, is_final=False)
        else:
            why = (
                f"{request.topic} is served by {shown_kind(kind)} broker {located.broker_id}: the "
                f"namespace was created in the cluster without {BROKER_KIND_PROPERTY}="
                f"{BrokerKind.STOCK}"
            )
            self._plugin.refused(request.number, "NOT_ALLOWED", why, is_final=True)
