"""Ledgers in memory, for topics that are not persistent and for tests of the layers above.

They obey the same rules as those on disk (tests/contract/test_ledgers.py tests both). Stores with
the same ``MemoryLedgers`` behave like processes that share a directory.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from brokers.adapters.ledger.accepting import Listeners, check_entry, check_state, remember
from brokers.domain.position import BEFORE_ALL, Position, ledger_id_of
from brokers.ports.ledger import (
    Entry,
    Extent,
    Fenced,
    LedgerReader,
    LedgerStore,
    NewEntry,
    StorageFailed,
    TopicLedger,
)
from nextgen.kernel.events.generations import generation_of
from nextgen.kernel.limits import pulsar as pulsar_limits

_REMOVED_EPOCH = 2**64
"""Above every epoch: the claim of a unit that was removed."""

_position_of = attrgetter("position")
_publish_time_of = attrgetter("publish_time_ms")


class _Unit:
    """The content that a unit's directory would have."""

    def __init__(self, ledgers: MemoryLedgers) -> None:
        self._ledgers = ledgers
        self.claims: dict[int, object] = {}
        self.entries: list[Entry] = []
        self.state: dict[str, bytes] = {}
        self.producers: dict[str, int] = {}
        self.last = BEFORE_ALL
        self.last_time_ms = 0
        self.byte_count = 0
        self.sealed_epoch = -1
        """The highest epoch that its own owner has ended."""

    @property
    def owner_epoch(self) -> int:
        return max(self.claims, default=-1)

    def beyond(self, bytes_max: int) -> int:
        """Return how many of the first entries to remove so that the rest fits; the last stays."""
        size, count = self.byte_count, 0
        while size > bytes_max and count < len(self.entries) - 1:
            size -= len(self.entries[count].payload)
            count += 1
        return count

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        self.entries.append(entry)
        self.last = entry.position
        self.last_time_ms = entry.publish_time_ms
        self._count(len(entry.payload))

    def drop(self, count: int) -> None:
        """Remove the first ``count`` entries."""
        self._count(-sum(len(entry.payload) for entry in self.entries[:count]))
        del self.entries[:count]

    def _count(self, size_bytes: int) -> None:
        self.byte_count += size_bytes
        self._ledgers.byte_count += size_bytes


class MemoryLedgers:
    """All stored units; outlives the stores that use it."""

    def __init__(self) -> None:
        self.units: dict[tuple[str, str], _Unit] = {}
        self.byte_count = 0


class MemoryReader(LedgerReader):
    """Reads one unit."""

    def __init__(self, unit: _Unit) -> None:
        self._unit = unit

    @property
    def first(self) -> Position:
        if self._unit.entries:
            return self._unit.entries[0].position
        return Position(self._unit.last.ledger_id, self._unit.last.entry_id + 1)

    @property
    def last(self) -> Position:
        return self._unit.last

    @property
    def entry_count(self) -> int:
        return len(self._unit.entries)

    @property
    def byte_count(self) -> int:
        return self._unit.byte_count

    @property
    def extents(self) -> Sequence[Extent]:
        return self.extents_from(0)

    def extents_from(self, ledger_id: int) -> Sequence[Extent]:
        kept = [each for each in self._unit.entries if each.position.ledger_id >= ledger_id]
        ledgers = groupby(kept, key=lambda entry: entry.position.ledger_id)
        return [_extent(each, list(entries)) for each, entries in ledgers]

    async def read(self, after: Position, *, entries_max: int, bytes_max: int) -> Sequence[Entry]:
        return self.read_recent(after, entries_max=entries_max, bytes_max=bytes_max)

    def read_recent(self, after: Position, *, entries_max: int, bytes_max: int) -> Sequence[Entry]:
        """Return the same as ``read``: all entries are in memory."""
        entries = self._unit.entries
        start = bisect_right(entries, after, key=_position_of)
        found: list[Entry] = []
        size = 0
        for entry in entries[start : start + entries_max]:
            size += len(entry.payload)
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    async def before_time(self, publish_time_ms: int) -> Position:
        entries = self._unit.entries
        index = bisect_left(entries, publish_time_ms, key=_publish_time_of)
        return entries[index - 1].position if index else BEFORE_ALL

    def entries_between(self, after: Position, up_to: Position) -> int:
        entries = self._unit.entries
        start = bisect_right(entries, after, key=_position_of)
        return max(0, bisect_right(entries, up_to, key=_position_of) - start)

    @property
    def state(self) -> Mapping[str, bytes]:
        return self._unit.state


class MemoryLedger(MemoryReader, TopicLedger):
    """One unit, opened by its owner of one epoch. Appends are acknowledged an iteration later."""

    def __init__(self, store: MemoryLedgerStore, unit: _Unit, epoch: int) -> None:
        super().__init__(unit)
        self._store = store
        self._epoch = epoch
        self._is_fenced = False
        self._is_closed = False
        self._failure: Exception | None = None
        self._state = dict(unit.state)
        self._segment = store.segment_of(unit, epoch)
        self._segment_bytes = 0
        self._next_entry = 0
        self._pending: list[tuple[Entry, asyncio.Future[Position]]] = []
        self._pending_bytes = 0
        self._facts: list[tuple[str, bytes | None, asyncio.Future[None]]] = []
        self._commit_is_due = False
        self._last_time_ms = unit.last_time_ms
        self._appended = Listeners()
        self._fenced = Listeners()

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def is_fenced(self) -> bool:
        return self._is_fenced

    @property
    def last_time_ms(self) -> int:
        return self._last_time_ms

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def state(self) -> Mapping[str, bytes]:
        return self._state

    @property
    def producers(self) -> Mapping[str, int]:
        return self._unit.producers

    @property
    def pending_bytes(self) -> int:
        return self._pending_bytes

    @property
    def is_congested(self) -> bool:
        return self._pending_bytes > pulsar_limits.LEDGER_PENDING_PAUSE_BYTES

    def append(self, entry: NewEntry) -> asyncio.Future[Position]:
        check_entry(entry)
        future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        size = len(entry.payload)
        if self._segment_bytes and self._segment_bytes + size > self._store.segment_bytes:
            self._segment, self._segment_bytes, self._next_entry = self._segment + 1, 0, 0
        position = Position(ledger_id_of(self._epoch, self._segment), self._next_entry)
        self._last_time_ms = max(self._last_time_ms, self._store.now_ms())
        stored = Entry(
            position=position,
            payload=entry.payload,
            message_count=entry.message_count,
            publish_time_ms=self._last_time_ms,
            producer_name=entry.producer_name,
            sequence_id=entry.sequence_id,
        )
        self._next_entry += 1
        self._segment_bytes += size
        self._pending_bytes += size
        self._pending.append((stored, future))
        self._commit_soon()
        return future

    def put_state(self, key: str, value: bytes | None) -> asyncio.Future[None]:
        check_state(key, value)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if value is None:
            self._state.pop(key, None)
        else:
            self._state[key] = value
        self._facts.append((key, value, future))
        self._commit_soon()
        return future

    def on_appended(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._appended.add(listener)

    def on_fenced(self, listener: Callable[[], None]) -> None:
        self._fenced.add(listener)

    def on_failed(self, listener: Callable[[Exception], None]) -> None:
        """Do nothing: memory does not fail."""

    def look_for_fence(self) -> None:
        self._commit_soon()

    async def trim(self, up_to: Position) -> None:
        self._commit()
        if self._failure is not None:
            raise self._failure
        entries = self._unit.entries
        if not entries:
            return
        # Segments after that of ``up_to`` stay, and so does its own unless it ends there.
        last_ledger = entries[-1].position.ledger_id
        ledger = min(up_to.ledger_id, last_ledger)
        behind = bisect_left(entries, Position(ledger + 1, -1), key=_position_of)
        if ledger == last_ledger or entries[behind - 1].position > up_to:
            behind = bisect_left(entries, Position(ledger, -1), key=_position_of)
        self._unit.drop(behind)

    async def close(self, *, is_over: bool = False) -> None:
        self._commit()
        if is_over and self._failure is None:
            self._unit.sealed_epoch = max(self._unit.sealed_epoch, self.epoch)
        self._is_closed = True
        self._failure = self._failure or StorageFailed("the ledger is closed")
        self._store.forget(self)
        self._appended.clear()

    def fence(self) -> None:
        """Fence this owner, because a later epoch was opened: fail all pending futures."""
        if self._is_fenced:
            return
        self._is_fenced = True
        self._failure = Fenced(f"epoch {self._unit.owner_epoch} owns the topic")
        self._commit()
        self._fenced.call()
        self._fenced.clear()

    def _commit_soon(self) -> None:
        if not self._commit_is_due:
            self._commit_is_due = True
            asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        self._commit_is_due = False
        if self._unit.owner_epoch > self._epoch:
            self.fence()
        pending, self._pending = self._pending, []
        facts, self._facts = self._facts, []
        self._pending_bytes = 0
        if self._failure is not None:
            for _, acknowledged in pending:
                _fail(acknowledged, self._failure)
            for _, _, stored in facts:
                _fail(stored, self._failure)
            return
        for entry, acknowledged in pending:
            self._store_entry(entry)
            if not acknowledged.done():
                acknowledged.set_result(entry.position)
        self._store_facts(facts)
        if pending:
            self._appended.call()

    def _store_entry(self, entry: Entry) -> None:
        unit = self._unit
        unit.add(entry)
        remember(unit.producers, entry.producer_name, entry.sequence_id)
        bytes_max = self._store.bytes_kept()
        if bytes_max is not None and unit.byte_count > bytes_max:
            unit.drop(unit.beyond(bytes_max))

    def _store_facts(self, facts: list[tuple[str, bytes | None, asyncio.Future[None]]]) -> None:
        for key, value, stored in facts:
            if value is None:
                self._unit.state.pop(key, None)
            else:
                self._unit.state[key] = value
            if not stored.done():
                stored.set_result(None)


class MemoryLedgerStore(LedgerStore):
    """All topics' ledgers, in memory.

    With ``bytes_max`` a topic keeps at most that many bytes of its newest entries, and nothing
    after it is closed. While all topics together exceed ``total_bytes_max``, a new entry replaces
    all earlier entries of its topic.
    """

    def __init__(
        self,
        shared: MemoryLedgers | None = None,
        *,
        bytes_max: int = 0,
        total_bytes_max: int = pulsar_limits.VOLATILE_BYTES_TOTAL_MAX,
        segment_bytes: int = pulsar_limits.LEDGER_SEGMENT_BYTES,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._shared = shared or MemoryLedgers()
        self._ledgers: dict[tuple[str, str, int], MemoryLedger] = {}
        self.bytes_max = bytes_max
        self.total_bytes_max = total_bytes_max
        self.segment_bytes = segment_bytes
        self.now_ms = now_ms

    async def open(self, topic_id: str, unit: str, epoch: int, *, topic_name: str) -> MemoryLedger:
        stored = self._shared.units.setdefault((topic_id, unit), _Unit(self._shared))
        used = max(stored.owner_epoch, stored.sealed_epoch, *stored.claims, 0)
        if epoch < stored.owner_epoch:
            raise Fenced(f"epoch {stored.owner_epoch} owns {topic_name}", used_epoch=used)
        if epoch <= stored.sealed_epoch:
            raise Fenced(f"epoch {epoch} of {topic_name} has ended", used_epoch=used)
        if stored.claims.setdefault(epoch, self) is not self:
            raise Fenced(f"another process has epoch {epoch} of {topic_name}", used_epoch=used)
        ledger = self._ledgers.get((topic_id, unit, epoch))
        if ledger is None:
            self._fence_older(topic_id, unit, epoch)
            ledger = MemoryLedger(self, stored, epoch)
            self._ledgers[topic_id, unit, epoch] = ledger
        return ledger

    async def prepare(self, topic_id: str, unit: str) -> None:
        return

    async def remove(self, topic_id: str, unit: str, epoch: int) -> None:
        stored = self._shared.units.get((topic_id, unit))
        claimed = 0 if stored is None else max(stored.claims, default=0)
        if stored is not None and generation_of(claimed) <= generation_of(epoch):
            del self._shared.units[topic_id, unit]
            # Claimed for ever, so that an owner that has it open is fenced.
            stored.claims[_REMOVED_EPOCH] = self
            stored.drop(len(stored.entries))
            self._fence_older(topic_id, unit, _REMOVED_EPOCH)

    async def open_reader(self, topic_id: str, unit: str) -> LedgerReader | None:
        stored = self._shared.units.get((topic_id, unit))
        return None if stored is None else MemoryReader(stored)

    async def close(self) -> None:
        for ledger in tuple(self._ledgers.values()):
            await ledger.close()

    def forget(self, ledger: MemoryLedger) -> None:
        """Forget a closed ledger; its epoch may be opened again."""
        for key, known in tuple(self._ledgers.items()):
            if known is ledger:
                del self._ledgers[key]
                kept = self._shared.units.pop(key[:2], None) if self.bytes_max else None
                if kept is not None:
                    kept.drop(len(kept.entries))

    def bytes_kept(self) -> int | None:
        """Return the number of bytes that a topic may keep at the moment; None: no limit."""
        if not self.bytes_max:
            return None
        return 0 if self._shared.byte_count > self.total_bytes_max else self.bytes_max

    def segment_of(self, unit: _Unit, epoch: int) -> int:
        """Return the first segment of an owner of ``epoch``."""
        if unit.last.ledger_id < ledger_id_of(epoch, 0):
            return 0
        return unit.last.ledger_id - ledger_id_of(epoch, 0) + 1

    def _fence_older(self, topic_id: str, unit: str, epoch: int) -> None:
        for (known_topic, known_unit, known_epoch), ledger in tuple(self._ledgers.items()):
            if (known_topic, known_unit) == (topic_id, unit) and known_epoch < epoch:
                ledger.fence()


def _fail(future: asyncio.Future[Position] | asyncio.Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        # Mark the exception as retrieved: no task may be awaiting this future any more.
        future.exception()


def _extent(ledger_id: int, entries: list[Entry]) -> Extent:
    size = sum(len(each.payload) for each in entries)
    times = entries[0].publish_time_ms, entries[-1].publish_time_ms
    return Extent(ledger_id, len(entries), size, *times)
