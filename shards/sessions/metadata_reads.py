"""Reads of tenants and namespaces for brokers; concurrent requests for an object share one read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.tasks.background import start
from protos.nextgen.v1.inventory_pb2 import Item
from protos.nextgen.v1.shard_service_pb2 import ObjectName
from shards.ports import Clock, MetadataReader

_METADATA_TIMEOUT_MS = 3_000
"""Reading a tenant or namespace at its home shard, a leader's election included."""


@dataclass(frozen=True, slots=True)
class MetadataRead:
    """The objects read, in the requested order, and the time of the first request, in monotonic
    seconds: the objects are as of that time or later."""

    items: list[Item]
    asked_at: float


@dataclass(frozen=True, slots=True)
class _Reading:
    item: asyncio.Future[Item]
    asked_at: float


class MetadataReads:
    """Reads in flight of one broker manager. Results are not kept."""

    def __init__(self, metadata: MetadataReader, subscriber_id: str, clock: Clock) -> None:
        self._metadata = metadata
        self._subscriber_id = subscriber_id
        self._clock = clock
        self._reading: dict[str, _Reading] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed: MetadataError | None = None

    def close(self, error: MetadataError) -> None:
        """Fail all waiting callers with ``error``."""
        self._closed = error
        for task in self._tasks:
            task.cancel()

    async def read(self, names: Sequence[ObjectName]) -> MetadataRead:
        """Return the metadata called ``names``, in order.

        Raises:
            MetadataError: A home shard could not be reached, or has no such object.
        """
        now = self._clock.monotonic()
        if not names:
            return MetadataRead([], now)
        absent = [name for name in names if name.name not in self._reading]
        if absent:
            loop = asyncio.get_running_loop()
            for name in absent:
                self._reading[name.name] = _Reading(loop.create_future(), now)
            start("metadata_read", self._read_now(absent), self._tasks)
        readings = [self._reading[name.name] for name in names]
        await asyncio.wait([reading.item for reading in readings])
        items = [reading.item.result() for reading in readings]
        for item in items:
            if item.WhichOneof("value") is None:
                raise Unavailable(f"{item.name} has a topic but is not in its inventory")
        return MetadataRead(items, min(reading.asked_at for reading in readings))

    async def _read_now(self, names: list[ObjectName]) -> None:
        futures = [self._reading[name.name].item for name in names]
        try:
            items = await self._metadata.read(
                names, timeout_ms=_METADATA_TIMEOUT_MS, subscriber_id=self._subscriber_id
            )
            for future, item in zip(futures, items, strict=True):
                future.set_result(item)
        except MetadataError as error:
            _fail_all(futures, error)
        finally:
            for name in names:
                del self._reading[name.name]
            _fail_all(futures, self._closed or Unavailable("the metadata was not read"))


def _fail_all(futures: Iterable[asyncio.Future[Item]], error: MetadataError) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
            future.exception()  # Mark the exception as retrieved: there may be no waiter left.
