"""All topics' ledgers in one directory that the brokers of one machine share (ADR 0019).

The file system must be a coherent local one: a process sees the writes of all others, and exclusive
creation and link(2) are atomic. Network file systems do not promise that.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from brokers.adapters.ledger.disk_ledger import DiskLedger
from brokers.adapters.ledger.format.files import DISK, OnStep, Owner, UnitDirectory
from brokers.adapters.ledger.ownership.self_seal import seal_own
from brokers.adapters.ledger.ownership.sync_threads import SyncThreads
from brokers.adapters.ledger.ownership.takeover import (
    Holding,
    Takeover,
    Together,
    Unit,
    read_ahead,
    remove_superfluous,
)
from brokers.adapters.ledger.reading.feed_reader import FeedReader
from brokers.adapters.ledger.reading.foreign_reader import ForeignReader
from brokers.adapters.ledger.reading.read_files import Indexes, ReadFiles
from brokers.adapters.ledger.reading.recent import RecentCache
from brokers.adapters.ledger.reading.table_reader import Readers
from brokers.adapters.ledger.writing.unit_files import UnitFiles
from brokers.adapters.ledger.writing.writers import Writer
from brokers.domain.acknowledgements import Acknowledgements
from brokers.domain.topic_facts import source_facts
from brokers.ports.ledger import LedgerDamaged, LedgerReader, LedgerStore, StorageFailed
from brokers.ports.source_feed import SourceState
from nextgen.kernel.limits import pulsar as pulsar_limits
from nextgen.storage.disk import SharedStorage, make_directory_durably
from nextgen.tasks.background import join

_TOKEN_BYTES = 8
_Key = tuple[str, str, int]
MakeWriter = Callable[[asyncio.AbstractEventLoop, str, int], Writer]
MakePool = Callable[[int, str], Executor]


def wall_clock_ms() -> int:
    """Return the machine's time."""
    return time.time_ns() // 1_000_000


def _remove_superfluous(directory: UnitDirectory, epoch: int, holding: Holding) -> None:
    # The next owner finds the same superfluous files and tries again.
    with suppress(OSError):
        remove_superfluous(directory, epoch, holding)


def _no_step(name: str) -> None:
    return


def _thread_pool(threads: int, name: str) -> Executor:
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


class DiskLedgerStore(LedgerStore):
    """One process's access to the ledger directory. Used on one event loop."""

    def __init__(
        self,
        root: Path,
        *,
        broker_id: str,
        storage: SharedStorage = DISK,
        segment_bytes: int = pulsar_limits.LEDGER_SEGMENT_BYTES,
        index_bytes: int = pulsar_limits.LEDGER_INDEX_BYTES,
        recent_bytes_max: int = pulsar_limits.LEDGER_RECENT_BYTES_MAX,
        writers: int = pulsar_limits.LEDGER_WRITERS,
        files_max: int = pulsar_limits.LEDGER_OPEN_FILES_MAX,
        make_writer: MakeWriter = Writer,
        make_pool: MakePool = _thread_pool,
        now_ms: Callable[[], int] = wall_clock_ms,
        on_step: OnStep = _no_step,
        together: Together | None = None,
        acknowledgements: Acknowledgements | None = None,
    ) -> None:
        self._root = root
        self._storage = storage
        self._owner = Owner(broker_id, secrets.token_hex(_TOKEN_BYTES), now_ms)
        self._index_bytes = index_bytes
        self._writer_count = writers
        self._make_writer = make_writer
        self._writers: list[Writer] = []
        self._ledgers: dict[_Key, DiskLedger] = {}
        self._openings: dict[_Key, asyncio.Task[DiskLedger]] = {}
        self._tidying: set[asyncio.Future[None]] = set()
        self._takeovers = make_pool(pulsar_limits.LEDGER_TAKEOVERS_AT_A_TIME, "ledger-takeover")
        self._syncs = SyncThreads(2 * pulsar_limits.LEDGER_TAKEOVERS_AT_A_TIME)
        self._together = together or self._syncs.together
        self._make_pool = make_pool
        self._removals: Executor | None = None
        self._is_closed = False
        self._files_max = files_max
        files = ReadFiles(storage, files_max)
        self.readers = Readers(
            threads=make_pool(pulsar_limits.LEDGER_READS_AT_A_TIME, "ledger-read"),
            files=files,
            indexes=Indexes(files, index_bytes),
        )
        self.acknowledgements = Acknowledgements() if acknowledgements is None else acknowledgements
        """Acknowledged intervals of every unit that this process opened; auditors watch them."""
        self.recent = RecentCache(recent_bytes_max)
        self.pending_bytes = 0
        self.segment_bytes = segment_bytes
        self.now_ms = now_ms
        self.on_step = on_step

    async def open(self, topic_id: str, unit: str, epoch: int, *, topic_name: str) -> DiskLedger:
        key = (topic_id, unit, epoch)
        ledger = self._ledgers.get(key)
        if ledger is not None and ledger.is_usable:
            return ledger
        opening = self._openings.get(key)
        if opening is None:
            opening = join(self._open(key, Unit(topic_id, unit, topic_name)))
            self._openings[key] = opening
            opening.add_done_callback(partial(self._opened, key))
        # Callers share the opening: a cancelled caller must not cancel it for the others.
        return await asyncio.shield(opening)

    async def prepare(self, topic_id: str, unit: str) -> None:
        loop = asyncio.get_running_loop()
        directory = self._directory(topic_id, unit)
        # The takeover will report a fault of the files.
        with suppress(LedgerDamaged, OSError):
            await loop.run_in_executor(self.readers.threads, read_ahead, directory)

    async def remove(self, topic_id: str, unit: str, epoch: int) -> None:
        directory = self._directory(topic_id, unit)
        if self._removals is None:
            # A thread of its own: the files of large topics take seconds, and openings do not wait.
            self._removals = self._make_pool(1, "ledger-removal")
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(
                self._removals, directory.remove, epoch, lambda: self._is_closed
            )
        except OSError as error:
            raise StorageFailed(f"{directory.path}: {error}") from error

    async def open_reader(self, topic_id: str, unit: str) -> LedgerReader | None:
        reader = ForeignReader(self._directory(topic_id, unit), self.readers)
        return reader if await reader.look() else None

    def feed_reader(self, topic_id: str, unit: str) -> FeedReader:
        """Return a reader for a shadow of a unit; it knows no extent yet."""
        return FeedReader(self._directory(topic_id, unit), self.readers, self.recent)

    async def look(self, topic_id: str, unit: str) -> SourceState | None:
        """Measure what a unit has stored, for a shadow of it; None: nothing.

        Raises:
            LedgerDamaged: A sealed file is damaged.
            StorageFailed: The disk refused.
        """
        reader = ForeignReader(self._directory(topic_id, unit), self.readers)
        if not await reader.look():
            return None
        facts = source_facts(reader.state)
        return SourceState(topic_id, unit, 0, reader.extents, facts)

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.gather(*self._openings.values(), return_exceptions=True)
        await asyncio.gather(*(ledger.close() for ledger in tuple(self._ledgers.values())))
        await asyncio.gather(*self._tidying)
        for writer in self._writers:
            writer.stop()
        self._writers.clear()
        self._takeovers.shutdown()
        self._syncs.stop()
        if self._removals is not None:
            self._removals.shutdown()
        self.readers.threads.shutdown()
        self.readers.files.close()

    def _opened(self, key: _Key, opening: asyncio.Task[DiskLedger]) -> None:
        del self._openings[key]
        if not opening.cancelled():
            # Mark the exception as retrieved: every caller may have been cancelled meanwhile.
            opening.exception()

    async def _open(self, key: _Key, unit: Unit) -> DiskLedger:
        before = self._ledgers.get(key)
        if before is not None:
            await before.close()
        epoch = key[2]
        directory = self._directory(unit.topic_id, unit.unit)
        takeover = Takeover(directory, unit, epoch, self._owner, self.on_step, self._together)
        loop = asyncio.get_running_loop()
        try:
            holding = await loop.run_in_executor(self._takeovers, self._take_over, takeover)
        except OSError as error:
            raise StorageFailed(f"{directory.path}: {error}") from error
        finally:
            # Even a failed opening may have fenced an owner in this process.
            self._have_lower_epochs_look(key)
        files = UnitFiles(
            directory,
            unit,
            epoch,
            self._owner,
            holding,
            index_bytes=self._index_bytes,
            on_step=self.on_step,
        )
        writer = self._least_busy_writer(loop)
        writer.units += 1
        on_closed = partial(self._closed, key, writer)
        seal = partial(seal_own, directory, epoch, holding.claim, self._owner, self.on_step)
        acknowledged = self.acknowledgements.opened(key, unit.topic_name)
        ledger = DiskLedger(
            self, directory, epoch, holding, files, writer, on_closed, seal, acknowledged
        )
        self._ledgers[key] = ledger
        self._tidy(directory, epoch, holding)
        return ledger

    def _tidy(self, directory: UnitDirectory, epoch: int, holding: Holding) -> None:
        """Remove superfluous files in the background; only ``close`` waits for it."""
        loop = asyncio.get_running_loop()
        tidying = loop.run_in_executor(
            self._takeovers, _remove_superfluous, directory, epoch, holding
        )
        self._tidying.add(tidying)
        tidying.add_done_callback(self._tidying.discard)

    def _closed(self, key: _Key, writer: Writer) -> None:
        """Forget a ledger whose files are closed. Its epoch may be opened again."""
        writer.units -= 1
        self.acknowledgements.closed(key)
        del self._ledgers[key]

    def _take_over(self, takeover: Takeover) -> Holding:
        make_directory_durably(self._storage, self._root, label="ledger.root")
        return takeover.run()

    def _directory(self, topic_id: str, unit: str) -> UnitDirectory:
        return UnitDirectory(self._root, topic_id, unit, self._storage)

    def _have_lower_epochs_look(self, key: _Key) -> None:
        for (topic_id, unit, epoch), ledger in self._ledgers.items():
            if (topic_id, unit) == key[:2] and epoch < key[2]:
                ledger.look_for_fence()

    def _least_busy_writer(self, loop: asyncio.AbstractEventLoop) -> Writer:
        if len(self._writers) < self._writer_count:
            name = f"ledger-writer-{len(self._writers)}"
            files_max = self._files_max // self._writer_count
            self._writers.append(self._make_writer(loop, name, files_max))
            return self._writers[-1]
        return min(self._writers, key=lambda writer: writer.units)
