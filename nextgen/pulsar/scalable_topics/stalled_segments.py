"""Sealed segments that their consumer has read to the end and will never acknowledge to the end.

A Java client drops what a broker delivers again if its application has acknowledged it, and does
not acknowledge it again (apache/pulsar#7683). When a broker dies, or a connection breaks, before an
acknowledgement is stored, later acknowledgements include it. A sealed segment has none later, so
its children would wait until the application is started again. A segment consumer that is made
anew takes the messages again, hands them to the application, and acknowledges (ADR 0155).

    assigned and sealed ─▶ looked at ─▶ everything is delivered, not everything acknowledged
                              ▲                           │ no progress for a while
                              ╰── the owner is asked ─────┴─▶ taken from the consumer, given back
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import structlog

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.scalable import (
    SEGMENT_LOOK_MS,
    SEGMENT_LOOK_MS_MAX,
    SEGMENT_LOOKS_MAX,
    SEGMENT_STALL_MS,
    SEGMENT_STALL_MS_MAX,
)
from nextgen.kernel.routing.names import TopicName
from nextgen.tasks.background import start
from protos.nextgen.v1.broker_service_pb2 import TopicStats
from protos.nextgen.v1.topic_admin_pb2 import GetStatsRequest

_logger = structlog.get_logger(__name__)

_Reading = tuple[int, ...]


class SegmentOwners(Protocol):
    """The brokers of segments: ``TopicOwners``."""

    async def call(self, name: TopicName, request: Any) -> Any:
        """Send a request of ``TopicAdmin`` to the owner of ``name``; return its answer.

        Raises:
            MetadataError: It is not known how the segment is.
        """


class SegmentLooks:
    """How segments are, as their owners say. Shared by all consumers of a process."""

    def __init__(self, owners: SegmentOwners, looks_max: int = SEGMENT_LOOKS_MAX) -> None:
        self._owners = owners
        self._turns = asyncio.Semaphore(looks_max)

    async def look(self, segment: TopicName, subscription: str) -> _Reading | None:
        """Return what differs once the consumer gets or acknowledges anything more.

        None: the segment has more to deliver, or the consumer takes no more, or there is no
        consumer or nothing to acknowledge.

        Raises:
            MetadataError: It is not known how the segment is.
        """
        async with self._turns:
            stats: TopicStats = await self._owners.call(segment, GetStatsRequest())
        if not stats.is_terminated:
            return None
        for each in stats.subscriptions:
            if each.name == subscription:
                break
        else:
            return None
        if each.kind != "EXCLUSIVE" or not each.backlog_entries or len(each.rows) != 1:
            return None
        (consumer,) = each.rows
        if consumer.available_permits <= 0:
            # Its queue is full: the application is slow.
            return None
        return (
            consumer.client.connected_since_ms,
            consumer.consumer_id,
            consumer.messages_out,
            each.mark_delete.ledger_id,
            each.mark_delete.entry_id,
            each.backlog_entries,
        )


class StalledSegments:
    """Finds the stalled segments among those of one consumer. ``close`` it with the consumer.

    ``on_stalled`` gets the id of a segment that the consumer is to be given anew. An application
    that needs long for its last messages is not told apart: it may get these messages twice, so
    each call for a segment waits twice as long as the one before.
    """

    def __init__(
        self,
        looks: SegmentLooks,
        subscription: str,
        on_stalled: Callable[[int], Awaitable[None]],
    ) -> None:
        self._looks = looks
        self._subscription = subscription
        self._on_stalled = on_stalled
        self._watched: dict[int, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<StalledSegments watched={list(self._watched)}>"

    def watch(self, sealed: dict[int, TopicName]) -> None:
        """Watch exactly these sealed segments, by id."""
        for segment_id in self._watched.keys() - sealed.keys():
            self._watched.pop(segment_id).cancel()
        for segment_id, name in sealed.items():
            if segment_id not in self._watched:
                self._watched[segment_id] = start(
                    "stalled_segment", self._watch_one(segment_id, name)
                )

    def close(self) -> None:
        """Watch no segment any more."""
        self.watch({})

    async def _watch_one(self, segment_id: int, name: TopicName) -> None:
        loop = asyncio.get_running_loop()
        pause_ms, patience_ms = SEGMENT_LOOK_MS, SEGMENT_STALL_MS
        before: _Reading | None = None
        unchanged_since = 0.0
        while True:
            await asyncio.sleep(pause_ms / 1_000)
            try:
                reading = await self._looks.look(name, self._subscription)
            except MetadataError as error:
                _logger.debug("segment not looked at", segment=name.text, why=str(error))
                before = None
                continue
            if reading is None:
                # It has long to go, perhaps: an owner need not be asked often.
                pause_ms = min(2 * pause_ms, SEGMENT_LOOK_MS_MAX)
                before = None
                continue
            pause_ms = SEGMENT_LOOK_MS
            if reading != before:
                before, unchanged_since = reading, loop.time()
            elif loop.time() - unchanged_since >= patience_ms / 1_000:
                _logger.info(
                    "sealed segment is given anew to a consumer that does not acknowledge its end",
                    segment=name.text,
                    subscription=self._subscription,
                )
                await self._on_stalled(segment_id)
                patience_ms = min(2 * patience_ms, SEGMENT_STALL_MS_MAX)
                before = None
