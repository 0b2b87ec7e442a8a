"""Storage of brokers in memory that is slow, full or damaged when a test wants it to be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from brokers.adapters.ledger.memory_ledger import MemoryLedger, MemoryLedgers, MemoryLedgerStore
from brokers.domain.position import Position
from brokers.ports.ledger import NewEntry


class MoodyLedger:
    """A memory ledger whose appends can be held back, and which can fail."""

    def __init__(self, inner: MemoryLedger) -> None:
        self.inner = inner
        self.is_holding = False
        self.congested: bool | None = None
        self.failure: Exception | None = None
        self.appended: list[NewEntry] = []
        self.reads = 0
        self.read_error: Exception | None = None
        self.refusal: Exception | None = None
        """What ``put_state`` raises."""
        self._held: list[tuple[NewEntry, asyncio.Future[Position]]] = []
        self._held_facts: list[Callable[[], None]] | None = None
        self._on_failed: list[Callable[[Exception], None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def is_congested(self) -> bool:
        return self.inner.is_congested if self.congested is None else self.congested

    async def read(self, after: Position, **bounds: int) -> Any:
        self.reads += 1
        if self.read_error is not None:
            raise self.read_error
        return await self.inner.read(after, **bounds)

    async def before_time(self, publish_time_ms: int) -> Position:
        if self.read_error is not None:
            raise self.read_error
        return await self.inner.before_time(publish_time_ms)

    def on_failed(self, listener: Callable[[Exception], None]) -> None:
        self._on_failed.append(listener)

    def append(self, entry: NewEntry) -> asyncio.Future[Position]:
        self.appended.append(entry)
        outer: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._held.append((entry, outer))
        if not self.is_holding:
            self.release()
        return outer

    def put_state(self, key: str, value: bytes | None) -> asyncio.Future[None]:
        if self.refusal is not None:
            raise self.refusal
        if self.failure is None and self._held_facts is None:
            return self.inner.put_state(key, value)
        outer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._held_facts is not None:
            self._held_facts.append(lambda: self._store_fact(key, value, outer))
            return outer
        outer.set_exception(self.failure)
        outer.add_done_callback(lambda done: done.exception())
        self._fail()
        return outer

    def hold_facts(self) -> None:
        """Store no facts until ``release_facts``."""
        self._held_facts = self._held_facts or []

    def release_facts(self) -> None:
        held, self._held_facts = self._held_facts or [], None
        for store in held:
            store()

    def release(self) -> None:
        """Store what was held back, or fail it."""
        self.is_holding = False
        held, self._held = self._held, []
        for entry, outer in held:
            if self.failure is not None:
                outer.set_exception(self.failure)
                self._fail()
            else:
                self.inner.append(entry).add_done_callback(lambda done, to=outer: _copy(done, to))

    def _store_fact(self, key: str, value: bytes | None, outer: asyncio.Future[None]) -> None:
        self.inner.put_state(key, value).add_done_callback(lambda done: _copy(done, outer))

    def _fail(self) -> None:
        listeners, self._on_failed = self._on_failed, []
        for listener in listeners:
            listener(self.failure)


def _copy(done: asyncio.Future[Any], outer: asyncio.Future[Any]) -> None:
    if outer.done():
        return
    error = done.exception()
    if error is None:
        outer.set_result(done.result())
    else:
        outer.set_exception(error)
        # As in every ledger: whoever let go of the future does not want to be told in the log.
        outer.exception()


class MoodyStore(MemoryLedgerStore):
    """A store of ``MoodyLedger``s; the one of a topic stays the same until it is closed."""

    def __init__(self, shared: MemoryLedgers, **options: Any) -> None:
        super().__init__(shared, **options)
        self.moody: dict[str, MoodyLedger] = {}
        self.every: list[MoodyLedger] = []
        """All there ever were."""
        self.error: Exception | None = None
        self.opened = 0
        self.released = asyncio.Event()
        self.released.set()

    async def open(self, topic_id: str, unit: str, epoch: int, *, topic_name: str) -> Any:
        self.opened += 1
        await self.released.wait()
        if self.error is not None:
            raise self.error
        inner = await super().open(topic_id, unit, epoch, topic_name=topic_name)
        known = self.moody.get(topic_name)
        if known is None or known.inner is not inner:
            self.moody[topic_name] = MoodyLedger(inner)
            self.every.append(self.moody[topic_name])
        return self.moody[topic_name]
