"""Exports one shard: reads its log from the end of the export on, and writes it to files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing

import structlog

from nextgen.client.log.reader import EventPage
from nextgen.export.directory import ExportDirectory, event_digest
from nextgen.export.errors import ExportGap, WrongExport
from nextgen.export.log_source import LogSource
from nextgen.export.threads import in_thread
from nextgen.export.writing.progress import ShardProgress
from nextgen.export.writing.shard_files import FileLimits, ShardFiles
from nextgen.kernel.errors import (
    Indefinite,
    MetadataError,
    PositionAhead,
    PositionCompacted,
    Unavailable,
)
from nextgen.kernel.limits.stream import EXPORT_PAGES_WAITING, EXPORT_PIN_RENEWED_MS
from nextgen.tasks.background import cancel_and_wait, join

LAST_EVENT_ATTEMPTS = 10
"""Attempts to read the last exported event before it counts as absent: a replica may be behind."""

LAST_EVENT_PAUSE_MS = 300

_log = structlog.get_logger(__name__)


class ShardExport:
    """One shard of one run. ``run`` once.

    ``target`` is the position to export up to; None: continue until ``stop`` is set.
    With ``accept_cut_beginning`` the export may begin with a log whose beginning was cut already;
    with ``accept_gap`` any gap is accepted.
    """

    def __init__(
        self,
        directory: ExportDirectory,
        log: LogSource,
        shard_id: int,
        progress: ShardProgress,
        *,
        target: int | None,
        stop: asyncio.Event,
        limits: FileLimits,
        accept_gap: bool = False,
        accept_cut_beginning: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shard_id = shard_id
        self._directory = directory
        self._log = log
        self._progress = progress
        self._target = target
        self._stop = stop
        self._limits = limits
        self._accepts_gap = accept_gap
        self._accepts_cut_beginning = accept_cut_beginning
        self._clock = clock
        self._opened_at: float | None = None
        self._files = ShardFiles(
            directory, shard_id, limits=limits, on_published=progress.published
        )

    def __repr__(self) -> str:
        return f"<ShardExport shard={self.shard_id} next={self._files.next_position}>"

    async def run(self) -> None:
        """Export until the target is reached or ``stop`` is set. All read events are then in files.

        Raises:
            WrongExport: The log is not the one that was exported.
            ExportGap: The log was cut after the export's end.
            ExportStopped, ExportRefused: Nothing more can be written.
            MetadataError: No replica answers.
        """
        self._progress.exported_position = self._files.exported_position
        await self._pin()
        await self._verify_last_event()
        pinning = join(self._keep_pinned())
        try:
            while not self._is_done():
                try:
                    await self._copy()
                except PositionCompacted as error:
                    await self._accept_gap(error)
        finally:
            await cancel_and_wait(pinning)
            await in_thread(self._files.abandon)

    # Reading ----------------------------------------------------------------------------------

    def _is_done(self) -> bool:
        is_there = self._target is not None and self._files.next_position > self._target
        return is_there or self._stop.is_set()

    async def _copy(self) -> None:
        """Copy until done. Events that were read before an error are published too."""
        pages: asyncio.Queue[EventPage] = asyncio.Queue(EXPORT_PAGES_WAITING)
        reading = join(self._read(pages))
        stopping = join(self._stop.wait())
        taking = join(pages.get())
        try:
            while not self._is_done():
                await asyncio.wait(
                    (taking, reading, stopping),
                    timeout=self._seconds_to_close(),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if taking.done():
                    await self._take(taking.result())
                    taking = join(pages.get())
                elif reading.done():
                    break
                if self._seconds_to_close() == 0:
                    await self._close_file()
            await self._close_file()
            if reading.done():
                reading.result()
        finally:
            for task in (reading, stopping, taking):
                task.cancel()
            await asyncio.gather(reading, stopping, taking, return_exceptions=True)

    async def _read(self, pages: asyncio.Queue[EventPage]) -> None:
        start = self._files.next_position
        async with aclosing(self._log.pages(self.shard_id, start, follow=True)) as read:
            async for page in read:
                await pages.put(page)
        raise Unavailable(f"the log of shard {self.shard_id} ended while it was followed")

    async def _take(self, page: EventPage) -> None:
        progress = self._progress
        progress.commit_position = max(progress.commit_position, page.commit_position)
        await in_thread(self._files.add, list(page.events))
        progress.oldest_waiting_ms = self._files.oldest_waiting_ms
        if progress.oldest_waiting_ms is None:
            self._opened_at = None
        elif self._opened_at is None:
            self._opened_at = self._clock()

    def _seconds_to_close(self) -> float | None:
        """Return the time until the open file must be closed for its age, None if never."""
        if self._opened_at is None or self._target is not None:
            return None
        return max(0.0, self._opened_at + self._limits.age_ms / 1000 - self._clock())

    async def _close_file(self) -> None:
        await in_thread(self._files.close_file)
        self._opened_at = None

    # The log and the export -------------------------------------------------------------------

    async def _verify_last_event(self) -> None:
        """Raise WrongExport unless the log has the last exported event where the export has it."""
        exported = self._directory.manifest.shard(self.shard_id)
        if not exported.last_event_sha256:
            return
        try:
            found = await self._digest_at(exported.position)
        except PositionCompacted:
            # The last exported event was cut. That alone is no gap: the next event decides.
            return
        if found != exported.last_event_sha256:
            raise WrongExport(
                f"shard {self.shard_id}: event {exported.position} of the log is not the one that "
                f"{self._directory.store.url} has. It holds another cluster's log, or that of an "
                "earlier life of this one: export to another directory"
            )

    async def _digest_at(self, position: int) -> str:
        last = "unknown"
        for _ in range(LAST_EVENT_ATTEMPTS):
            read = self._log.pages(self.shard_id, position, follow=False, limit=1)
            try:
                async with aclosing(read) as pages:
                    async for page in pages:
                        if page.events:
                            return event_digest(page.events[0])
                        last = str(page.commit_position)
            except PositionAhead as error:
                last = str(error.last)
                break
            await asyncio.sleep(LAST_EVENT_PAUSE_MS / 1000)
        raise WrongExport(
            f"shard {self.shard_id}: {self._directory.store.url} has events up to {position}, the "
            f"log ends at {last}. It holds another cluster's log, or that of an earlier life of "
            "this one: export to another directory"
        )

    async def _accept_gap(self, error: PositionCompacted) -> None:
        first = self._files.next_position
        if error.oldest <= first:
            raise error
        gap = ExportGap(self.shard_id, first, error.oldest - 1)
        is_beginning = self._accepts_cut_beginning and first == 1
        if not self._accepts_gap and not is_beginning:
            raise gap from error
        await in_thread(self._directory.accept_gap, self.shard_id, gap.last)
        self._progress.exported_position = gap.last
        _log.warning("export_gap_accepted", shard=self.shard_id, first=first, last=gap.last)

    async def _keep_pinned(self) -> None:
        while True:
            await asyncio.sleep(EXPORT_PIN_RENEWED_MS / 1000)
            await self._pin()

    async def _pin(self) -> None:
        """Pin the log from the last exported event on; the next run compares that event."""
        position = max(1, self._files.exported_position)
        try:
            await self._log.pin(self.shard_id, self._directory.manifest.reader_id, position)
        except PositionCompacted:
            # Reading finds out whether events are missing.
            return
        except MetadataError as error:
            if not isinstance(error, Unavailable | Indefinite):
                raise
            _log.warning("export_not_pinned", shard=self.shard_id, error=str(error))
