"""Removes topics from the inventory that Pulsar has deleted.

The plug-ins of several brokers may report one topic: the first removal finds it, the others find
nothing. What the inventory does not have is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.limits.stream import (
    PLUGIN_REMOVAL_ATTEMPTS_MAX,
    PLUGIN_REMOVALS_AT_ONCE,
    PLUGIN_REMOVALS_MAX,
    PLUGIN_RETRY_MS,
)
from nextgen.kernel.routing.names import InvalidName, TopicName, parse_topic
from nextgen.tasks.groups import TaskGroup

_logger = structlog.get_logger(__name__)


class TopicInventory(Protocol):
    """The topics that the cluster knows."""

    async def remove(self, name: TopicName) -> bool:
        """Remove a topic with all its partitions; return whether it was there.

        Raises:
            MetadataError: It may be there still, or was assigned anew since.
        """


class TopicRemovals:
    """The removals of one sidecar. ``run`` carries them out."""

    def __init__(self, inventory: TopicInventory) -> None:
        self._inventory = inventory
        self._pending: asyncio.Queue[TopicName] = asyncio.Queue(PLUGIN_REMOVALS_MAX)
        self.removed = 0
        """Topics that were removed since the start."""

    def __repr__(self) -> str:
        return f"<TopicRemovals pending={self._pending.qsize()} removed={self.removed}>"

    def add(self, topics: Sequence[str]) -> None:
        """Remove these topics, soon. Names that the cluster cannot have are left out."""
        dropped = 0
        for text in topics:
            try:
                name = parse_topic(text)
            except InvalidName:
                continue
            if name.text != text:
                # A short name stands for a topic of another namespace.
                continue
            try:
                self._pending.put_nowait(name)
            except asyncio.QueueFull:
                dropped += 1
        if dropped:
            _logger.warning("topics deleted by Pulsar stay in the inventory", topics=dropped)

    async def run(self) -> None:
        """Run until cancelled; what is pending then is carried out by the next ``run``."""
        async with TaskGroup() as tasks:
            for _ in range(PLUGIN_REMOVALS_AT_ONCE):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            name = await self._pending.get()
            try:
                await self._remove(name)
            except asyncio.CancelledError:
                self.add([name.text])
                raise

    async def _remove(self, name: TopicName) -> None:
        """Remove a topic, or log why it stays.

        It is not tried for long: by then Pulsar may have another topic of that name.
        """
        for _ in range(PLUGIN_REMOVAL_ATTEMPTS_MAX):
            try:
                if await self._inventory.remove(name):
                    self.removed += 1
                    _logger.info("topic deleted by Pulsar, removed here too", topic=name.text)
                return
            except Refused as error:
                why = f"{error.code}: {error}"
                break
            except MetadataError as error:
                # An election, or a client that looks the topic up at this moment.
                why = str(error)
                await asyncio.sleep(PLUGIN_RETRY_MS / 1_000)
        _logger.warning("topic deleted by Pulsar stays in the inventory", topic=name.text, why=why)
