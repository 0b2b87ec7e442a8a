"""One unit on disk, opened by its owner: the part that runs on the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from brokers.adapters.ledger.accepting import Listeners, check_entry, check_state, remember
from brokers.adapters.ledger.format.files import INDEX, OnStep, UnitDirectory
from brokers.adapters.ledger.format.measuring import FIRST_KEPT
from brokers.adapters.ledger.format.records import IndexPoint, entry_record_bytes
from brokers.adapters.ledger.ownership.takeover import Holding
from brokers.adapters.ledger.reading.recent import RecentCache, RecentEntries
from brokers.adapters.ledger.reading.table_reader import Readers, RecentReader
from brokers.adapters.ledger.writing.unit_files import Batch, PendingEntry, UnitFiles
from brokers.adapters.ledger.writing.writers import Outcome, Queue, Writer
from brokers.domain.acknowledgements import Acknowledged
from brokers.domain.position import Position, ledger_id_of
from brokers.ports.ledger import Entry, Fenced, NewEntry, StorageFailed, TopicLedger
from nextgen.kernel.limits import pulsar as pulsar_limits
from nextgen.storage.disk import SharedStorage

_LEDGER_ID_BYTES = 12
_HIDDEN = "\0"


class LedgerDependencies(Protocol):
    """The parts of the store that a ledger uses."""

    readers: Readers
    recent: RecentCache
    pending_bytes: int
    segment_bytes: int
    now_ms: Callable[[], int]
    on_step: OnStep


class DiskLedger(RecentReader, TopicLedger):
    """One unit, opened by its owner of one epoch."""

    def __init__(
        self,
        store: LedgerDependencies,
        directory: UnitDirectory,
        epoch: int,
        holding: Holding,
        files: UnitFiles,
        writer: Writer,
        on_closed: Callable[[], None],
        seal: Callable[[], None],
        acknowledged: Acknowledged,
    ) -> None:
        super().__init__(directory, store.readers, holding.past.table)
        self._store = store
        self._epoch = epoch
        self._queue = Queue(writer, files, self._settle)
        self._failure: Exception | None = None
        self._released: asyncio.Future[None] | None = None
        self._state = {
            key: value for key, value in holding.past.facts.items() if not key.startswith(_HIDDEN)
        }
        self._producers = holding.past.producers
        self._segment = holding.next_segment
        self._segment_bytes = 0
        self._next_entry = 0
        self._last_time_ms = self._table.last_time_ms
        self._unacknowledged: deque[PendingEntry] = deque()
        self._unstored: deque[tuple[asyncio.Future[None], int]] = deque()
        self._pending_bytes = 0
        self._points_of = -1
        self._points: list[IndexPoint] = []
        self._recent = RecentEntries(store.recent, self._table.end)
        self._appended = Listeners()
        self._fenced = Listeners()
        self._on_failed: list[Callable[[Exception], None]] = []
        self._on_closed = on_closed
        self._acknowledged = acknowledged
        self._seal = seal
        self._is_over = False

    def __repr__(self) -> str:
        condition = "fenced" if self.is_fenced else "failed" if self._failure else "open"
        return f"<DiskLedger {self._directory.path} epoch={self._epoch} {condition}>"

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def is_fenced(self) -> bool:
        return isinstance(self._failure, Fenced)

    @property
    def last_time_ms(self) -> int:
        return self._last_time_ms

    @property
    def is_usable(self) -> bool:
        """Whether opening the epoch again may return this same ledger."""
        return self._released is None and self._failure is None

    @property
    def state(self) -> Mapping[str, bytes]:
        return self._state

    @property
    def producers(self) -> Mapping[str, int]:
        return self._producers

    @property
    def pending_bytes(self) -> int:
        return self._pending_bytes

    @property
    def is_congested(self) -> bool:
        if self._pending_bytes > pulsar_limits.LEDGER_PENDING_PAUSE_BYTES:
            return True
        return (
            self._pending_bytes > 0
            and self._store.pending_bytes > pulsar_limits.LEDGER_PENDING_BYTES_MAX // 2
        )

    def append(self, entry: NewEntry) -> asyncio.Future[Position]:
        name = check_entry(entry)
        future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        size = entry_record_bytes(entry.payload, name)
        refusal = self._refusal(_pending_bytes_of(entry))
        if refusal is not None:
            _fail(future, refusal)
            return future
        producers = None
        if self._next_entry and self._segment_bytes + size > self._store.segment_bytes:
            self._segment, self._segment_bytes, self._next_entry = self._segment + 1, 0, 0
        if not self._next_entry:
            producers = self._producers_appended()
        position = Position(ledger_id_of(self._epoch, self._segment), self._next_entry)
        self._last_time_ms = max(self._last_time_ms, self._store.now_ms())
        pending = PendingEntry(entry, position, self._last_time_ms, name, producers, future)
        self._next_entry += 1
        self._segment_bytes += size
        self._add_pending(_pending_bytes_of(entry))
        self._unacknowledged.append(pending)
        self._queue.append(pending)
        return future

    def put_state(self, key: str, value: bytes | None) -> asyncio.Future[None]:
        check_state(key, value)
        if key.startswith(_HIDDEN):
            raise ValueError(f"{key!r} is reserved for the ledger itself")
        if value is None:
            self._state.pop(key, None)
        else:
            self._state[key] = value
        return self._put(key, value)

    def on_appended(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._appended.add(listener)

    def on_fenced(self, listener: Callable[[], None]) -> None:
        self._fenced.add(listener)

    def on_failed(self, listener: Callable[[Exception], None]) -> None:
        self._on_failed.append(listener)

    async def trim(self, up_to: Position) -> None:
        lowest = self._table.first_kept_above(up_to)
        if lowest <= self._table.first.ledger_id:
            return
        await self._put(FIRST_KEPT, lowest.to_bytes(_LEDGER_ID_BYTES, "big"))
        ledger_ids = [segment.ledger_id for segment in self._table.drop_below(lowest)]
        paths = [self._path(ledger_id) for ledger_id in ledger_ids]
        self._readers.files.drop(paths)
        self._readers.indexes.drop(paths)
        paths += [self._path(ledger_id, INDEX) for ledger_id in ledger_ids]
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(
                self._readers.threads, _remove, self._directory.storage, paths
            )
        except OSError as error:
            raise StorageFailed(f"{self._directory.path}: {error}") from error

    async def close(self, *, is_over: bool = False) -> None:
        if self._released is None:
            self._is_over = is_over
            self._released = asyncio.get_running_loop().create_future()
            self._queue.release()
        await asyncio.shield(self._released)

    def look_for_fence(self) -> None:
        """Check soon whether a later epoch was opened, even if nothing is appended.

        Does nothing for a closing ledger: its last round makes this check, and a further round
        would close it a second time.
        """
        if self._released is None:
            self._queue.look()

    def _open_points(self, ledger_id: int) -> list[IndexPoint] | None:
        return self._points if self._points_of == ledger_id else None

    def _refusal(self, size: int) -> Exception | None:
        """Return why ``size`` more bytes cannot be queued, None if they can."""
        if self._failure is None and self._released is not None:
            return StorageFailed("the ledger is closed")
        if self._failure is None and (
            self._store.pending_bytes + size > pulsar_limits.LEDGER_PENDING_BYTES_MAX
        ):
            self._fail_all(StorageFailed(f"{self._store.pending_bytes} bytes wait for the disk"))
        return self._failure

    def _put(self, key: str, value: bytes | None) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        size = len(key) + len(value or b"")
        refusal = self._refusal(size)
        if refusal is not None:
            _fail(future, refusal)
            return future
        self._add_pending(size)
        self._unstored.append((future, size))
        self._queue.put(key, value, future)
        return future

    def _add_pending(self, size: int) -> None:
        self._pending_bytes += size
        self._store.pending_bytes += size

    def _producers_appended(self) -> dict[str, int]:
        """Return the highest sequence ids, with all pending entries included."""
        producers = dict(self._producers)
        for pending in self._unacknowledged:
            remember(producers, pending.entry.producer_name, pending.entry.sequence_id)
        return producers

    def _settle(self, outcome: Outcome) -> None:
        """Handle the outcome of a round. Runs on the loop."""
        if self._failure is None:
            if outcome.error is None:
                self._acknowledge(outcome.batch, outcome.looked_at_ns)
            else:
                self._fail_all(outcome.error)
        if outcome.is_released:
            if self._is_over and self._failure is None:
                self._seal_and_let_go()
            else:
                self._let_go()

    def _acknowledge(self, batch: Batch, looked_at_ns: int) -> None:
        entries: list[Entry] = []
        for pending in batch.entries:
            self._unacknowledged.popleft()
            entries.append(self._stored(pending))
        if entries:
            self._acknowledged.note(looked_at_ns, len(entries))
            self._note_points(batch)
            self._recent.add(entries)
        for pending in batch.entries:
            if pending.future is not None and not pending.future.done():
                pending.future.set_result(pending.position)
        for _ in batch.facts_stored:
            future, size = self._unstored.popleft()
            self._add_pending(-size)
            if not future.done():
                future.set_result(None)
        if batch.entries or batch.facts:
            self._store.on_step("acknowledged")
        if entries:
            self._appended.call()

    def _stored(self, pending: PendingEntry) -> Entry:
        entry = pending.entry
        self._add_pending(-_pending_bytes_of(entry))
        self._table.grow(pending.position, pending.end, pending.time_ms)
        remember(self._producers, entry.producer_name, entry.sequence_id)
        return Entry(
            position=pending.position,
            payload=entry.payload,
            message_count=entry.message_count,
            publish_time_ms=pending.time_ms,
            producer_name=entry.producer_name,
            sequence_id=entry.sequence_id,
        )

    def _note_points(self, batch: Batch) -> None:
        for ledger_id, point in batch.points:
            if ledger_id != self._points_of:
                if self._points:
                    self._readers.indexes.put(self._path(self._points_of), self._points)
                self._points_of, self._points = ledger_id, []
            self._points.append(point)

    def _fail_all(self, error: Exception) -> None:
        """Fail all pending futures, in order, and all later ones."""
        self._failure = error
        self._queue.failure = self._queue.failure or error
        unacknowledged, self._unacknowledged = self._unacknowledged, deque()
        unstored, self._unstored = self._unstored, deque()
        self._add_pending(-self._pending_bytes)
        for pending in unacknowledged:
            _fail(pending.future, error)
        for future, _ in unstored:
            _fail(future, error)
        if isinstance(error, Fenced):
            self._fenced.call()
            self._fenced.clear()
            return
        listeners, self._on_failed = self._on_failed, []
        for listener in listeners:
            listener(error)

    def _seal_and_let_go(self) -> None:
        """End the epoch, after nothing of it is pending and its files are closed."""
        # Store nothing from here on: it would be behind the seal, and so would not exist.
        self._failure = StorageFailed("the ledger is closed")
        loop = asyncio.get_running_loop()
        sealing = loop.run_in_executor(self._readers.threads, self._seal)
        sealing.add_done_callback(self._sealed)

    def _sealed(self, sealing: asyncio.Future[None]) -> None:
        if not sealing.cancelled():
            # Without a seal a successor finds the state after a crash, and measures the files.
            sealing.exception()
        self._let_go()

    def _let_go(self) -> None:
        self._failure = self._failure or StorageFailed("the ledger is closed")
        self._recent.clear()
        self._appended.clear()
        self._on_closed()
        if self._released is not None and not self._released.done():
            self._released.set_result(None)


def _pending_bytes_of(entry: NewEntry) -> int:
    return len(entry.payload) + pulsar_limits.LEDGER_PENDING_ENTRY_BYTES


def _remove(storage: SharedStorage, paths: Sequence[str]) -> None:
    for path in paths:
        storage.unlink(path)


def _fail(future: asyncio.Future[Position] | asyncio.Future[None] | None, error: Exception) -> None:
    if future is not None and not future.done():
        future.set_exception(error)
        # Mark the exception as retrieved: no task may be awaiting this future any more.
        future.exception()
