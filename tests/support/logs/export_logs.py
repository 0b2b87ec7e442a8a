"""Logs for an exporter without a cluster, and events to fill them with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

from nextgen.client.log.reader import EventPage
from nextgen.export.log_source import Committed
from nextgen.kernel.errors import PositionAhead, PositionCompacted, Unavailable
from protos.nextgen.v1.events_pb2 import (
    Event,
    NamespaceCreated,
    TenantDeleted,
    TopicAssigned,
    TopicCreated,
)

TIME_MS = 1_764_000_000_000
DAY_MS = 86_400_000
PAGE_EVENTS = 7


def envelope(position: int, shard_id: int = 1, time_ms: int = TIME_MS) -> Event:
    """Return an event without a payload."""
    return Event(
        position=position,
        term=1 + position // 10,
        shard_id=shard_id,
        time_ms=time_ms,
        causation_id=position.to_bytes(16, "big") if position % 2 else b"",
        schema_version=1,
    )


def event(position: int, shard_id: int = 1, time_ms: int | None = None) -> Event:
    """Return the event that a position has in every log here: types take turns."""
    made = envelope(position, shard_id, TIME_MS + position if time_ms is None else time_ms)
    name = f"persistent://acme/orders/{shard_id}-{position}"
    match position % 4:
        case 0:
            made.tenant_deleted.CopyFrom(TenantDeleted(name="gone", tenant_id=f"{position:024x}"))
        case 1:
            made.topic_created.CopyFrom(
                TopicCreated(topic_id=f"{position:024x}", name=name, properties={"b": "2", "a": ""})
            )
        case 2:
            made.topic_assigned.CopyFrom(
                TopicAssigned(topic_id=f"{position:024x}", name=name, epoch=1, broker_id="b-1")
            )
        case _:
            made.namespace_created.CopyFrom(NamespaceCreated(name="acme/orders"))
    return made


def events(first: int, last: int, shard_id: int = 1) -> list[Event]:
    """Return the events of a range of positions, both ends included."""
    return [event(position, shard_id) for position in range(first, last + 1)]


class FakeLog:
    """A ``LogSource`` in memory that behaves as the replicas of a cluster do.

    ``append`` may be called while somebody follows; ``cut`` forgets what is in front.
    """

    def __init__(self, shards: Mapping[int, Sequence[Event]]) -> None:
        self._logs = {shard_id: list(log) for shard_id, log in shards.items()}
        self._oldest = dict.fromkeys(shards, 1)
        self._grown = asyncio.Condition()
        self.pins: dict[int, list[tuple[str, int]]] = {shard_id: [] for shard_id in shards}
        self.is_reachable = True
        self.has_leader = True
        self.pages_given = 0
        self.replica_lag = 0
        """Events that the read replica does not have until the log is followed there."""

    async def append(self, shard_id: int, more: Sequence[Event]) -> None:
        async with self._grown:
            self._logs.setdefault(shard_id, []).extend(more)
            self._oldest.setdefault(shard_id, 1)
            self.pins.setdefault(shard_id, [])
            self._grown.notify_all()

    def cut(self, shard_id: int, oldest: int) -> None:
        self._oldest[shard_id] = oldest

    def replace(self, shard_id: int, log: Sequence[Event]) -> None:
        self._logs[shard_id] = list(log)

    async def positions(self) -> Mapping[int, Committed]:
        self._check_reachable()
        return {
            shard: Committed(len(log), by_leader=self.has_leader)
            for shard, log in self._logs.items()
        }

    async def pages(
        self, shard_id: int, position: int, *, follow: bool, limit: int = 0
    ) -> AsyncGenerator[EventPage, None]:
        self._check_reachable()
        log = self._logs[shard_id]
        if self.replica_lag and not follow:
            log = log[: -self.replica_lag]
        if position < self._oldest[shard_id]:
            raise PositionCompacted(position, self._oldest[shard_id])
        if position > len(log) + 1:
            raise PositionAhead(position, len(log), is_final=True)
        remaining = limit or None
        while True:
            for page in self._pages_there(log, position, remaining):
                self.pages_given += 1
                yield page
                position = page.next_position
                remaining = None if remaining is None else remaining - len(page.events)
                self._check_reachable()
            if not follow or remaining == 0:
                return
            async with self._grown:
                if position > len(log):
                    await self._grown.wait()

    def _pages_there(
        self, log: Sequence[Event], position: int, remaining: int | None
    ) -> Iterator[EventPage]:
        last = len(log) if remaining is None else min(len(log), position - 1 + remaining)
        for start in range(position - 1, last, PAGE_EVENTS):
            page = log[start : min(last, start + PAGE_EVENTS)]
            yield EventPage(page, start + 1 + len(page), len(log))

    async def pin(self, shard_id: int, reader_id: str, position: int) -> None:
        self._check_reachable()
        self.pins[shard_id].append((reader_id, position))

    def _check_reachable(self) -> None:
        if not self.is_reachable:
            raise Unavailable("no replica answers")
