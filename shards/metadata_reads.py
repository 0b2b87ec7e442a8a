"""Reads of tenants and namespaces for brokers: whoever needs the same waits for the same read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from nextgen.kernel.errors import MetadataError, Unavailable
from protos.nextgen.v1.inventory_pb2 import Item
from protos.nextgen.v1.shard_service_pb2 import ObjectName
from shards.ports import MetadataReader

_METADATA_TIMEOUT_MS = 3_000
"""Reading a tenant or namespace at its home shard, a leader's election included."""


class MetadataReads:
    """Reads in flight of one broker manager. Nothing is kept once it was read."""

    def __init__(self, metadata: MetadataReader, subscriber_id: str = "") -> None:
        self._metadata = metadata
        self._subscriber_id = subscriber_id
        self._reading: dict[str, asyncio.Future[Item]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed: MetadataError | None = None

    def close(self, error: MetadataError) -> None:
        """Fail everybody who waits with ``error``."""
        self._closed = error
        for task in self._tasks:
            task.cancel()

    async def read(self, names: Sequence[ObjectName]) -> list[Item]:
        """Return the metadata called ``names``, in order.

        Raises:
            MetadataError: A home shard could not be asked, or has no such object.
        """
        absent = [name for name in names if name.name not in self._reading]
        if absent:
            loop = asyncio.get_running_loop()
            for name in absent:
                self._reading[name.name] = loop.create_future()
            task = loop.create_task(self._read_now(absent))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        futures = [self._reading[name.name] for name in names]
        await asyncio.wait(futures)
        items = [future.result() for future in futures]
        for item in items:
            if item.WhichOneof("value") is None:
                raise Unavailable(f"{item.name} has a topic but is not in its inventory")
        return items

    async def _read_now(self, names: list[ObjectName]) -> None:
        futures = [self._reading[name.name] for name in names]
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
            future.exception()  # Looked at, should everybody who waited be gone.
