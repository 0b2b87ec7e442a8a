"""Rebuilds a view from its log beside the one in use, and compares the two.

    the log's beginning, or a copy of the view ──replayed──▶ a view of its own, ``rebuilt``
    the view in use, pinned at one entry       ──scanned───▶ digest of the rows as they are
                                                             and what the view says it should be

The three are the same at the same entry, unless the fold, the disk or a person changed a row. Where
the beginning of the log was cut, only the view has what it said: the rebuilt one begins as its
copy, and what is compared are its rows with its digest, which the fold keeps. The log is read on
the event loop, a little at a time; everything else is done on a thread that rests as long as it
works, so the replica goes on serving.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from nextgen.kernel.errors import Overloaded, Unavailable
from nextgen.kernel.limits.cluster import DISK_RESERVE_BYTES, VERIFY_PAGE_BYTES, VERIFY_PAGE_ENTRIES
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.journal.journal import JournalEntry
from nextgen.replication.ports import AppliedPoint, Entry, PositionCompacted
from nextgen.replication.protocol.entry_codec import decode_records
from nextgen.replication.retention.log_retention import Pin
from nextgen.replication.view.digest import batches_of
from nextgen.replication.view.store import FIRST_VIEW_NAME, PinnedState, ViewStore
from nextgen.tasks.timeouts import timeout

T = TypeVar("T")

SCAN_PAUSE_S = 0.000_5
"""Pause after each ``DIGEST_SCAN_ROWS`` rows: longer than their scan takes."""

POSITION_WAIT_MS = 10_000
"""Time for this replica to apply the position at which all replicas are compared."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The findings. Equal digests mean equal views."""

    from_position: int  # Of the copy it began with, 0 for the log's beginning.
    position: int
    events_replayed: int
    rebuilt_digest: int
    stored_digest: int
    scanned_digest: int
    digest_at_position: int | None  # None: the replay began behind the requested position.


@dataclass(slots=True)
class _Replay:
    view: ViewStore
    start: AppliedPoint
    hold: Pin
    wanted_index: int | None  # The entry that reaches the requested position.
    wanted_digest: int | None = None


class ViewVerification:
    """Verifies one replica. ``directory`` is made and removed; ``open_rebuilt`` opens an empty
    view of the same kind in it."""

    def __init__(
        self,
        group: PySyncObjGroup,
        view: ViewStore,
        directory: Path,
        open_rebuilt: Callable[[Path], ViewStore],
    ) -> None:
        self._group = group
        self._view = view
        self._directory = directory
        self._open_rebuilt = open_rebuilt
        self._loop = asyncio.get_running_loop()

    async def run(self, at_position: int = 0) -> Verified:
        """Rebuild, scan and compare.

        Raises:
            Unavailable: The replica stopped, is behind ``at_position``, or lost the beginning of
                its log meanwhile.
            Overloaded: There is no room on the disk for a second view.
        """
        await self._wait_position(at_position)
        executor = ThreadPoolExecutor(1, thread_name_prefix="verify")
        try:
            async with self._replay(executor, at_position) as replay:
                await self._replay_to(executor, replay, self._view.applied().index)
                return await self._compare(executor, replay)
        finally:
            # Behind the thread's present work, also when no caller waits any more.
            remove = partial(shutil.rmtree, self._directory, ignore_errors=True)
            await asyncio.shield(self._blocking(executor, remove))
            executor.shutdown(wait=False)

    async def _wait_position(self, position: int) -> None:
        try:
            async with timeout(POSITION_WAIT_MS / 1000):
                await self._group.wait_position(position)
        except TimeoutError:
            raise Unavailable(
                f"this replica has not applied event {position} after {POSITION_WAIT_MS} ms"
            ) from None

    @asynccontextmanager
    async def _replay(self, executor: Executor, at_position: int) -> AsyncIterator[_Replay]:
        """Yield a view that begins where the log does, or as a copy of the view."""
        journal, retention = self._group.engine.journal, self._group.snapshots.retention
        hold = retention.hold_entries("verify", journal.first_index)
        view: ViewStore | None = None
        try:
            base_index = journal.base_index
            view = await self._blocking(executor, lambda: self._begin(base_index))
            start = view.applied()
            hold.move_to(start.index + 1)
            replay = _Replay(view, start, hold, self._index_of(at_position))
            if start.index == replay.wanted_index:
                replay.wanted_digest = view.running_digest
            yield replay
        finally:
            hold.release()
            if view is not None:
                await asyncio.shield(self._blocking(executor, view.close))

    def _begin(self, base_index: int) -> ViewStore:
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        needed = self._view.bytes_on_disk() + 2 * DISK_RESERVE_BYTES
        if shutil.disk_usage(self._directory).free < needed:
            raise Overloaded(f"the disk has no room for a second view of {needed:,} bytes")
        if base_index:
            self._view.write_snapshot(self._directory / FIRST_VIEW_NAME)
        return self._open_rebuilt(self._directory)

    def _index_of(self, position: int) -> int | None:
        """Return the entry behind which every replica is compared, if the log still has it."""
        try:
            return self._group.engine.journal.index_of_position(position) if position else None
        except PositionCompacted:
            return None

    async def _replay_to(self, executor: Executor, replay: _Replay, last_index: int) -> None:
        while (applied := replay.view.applied()).index < last_index:
            began = time.monotonic()
            page = self._page(applied.index + 1, last_index)
            await self._blocking(executor, partial(_fold, replay, page))
            replay.hold.move_to(replay.view.applied().index + 1)
            await asyncio.sleep(time.monotonic() - began)

    def _page(self, from_index: int, last_index: int) -> Sequence[JournalEntry]:
        engine = self._group.engine
        if engine.stopped:
            raise Unavailable(f"group {engine.group_id}: the replica stopped")
        if from_index < engine.journal.first_index:
            raise Unavailable(f"the log was cut behind entry {from_index}: try again")
        last = min(last_index, from_index + VERIFY_PAGE_ENTRIES - 1)
        return engine.journal.entries(from_index, last, VERIFY_PAGE_BYTES)

    async def _compare(self, executor: Executor, replay: _Replay) -> Verified:
        pinned: AbstractContextManager[PinnedState] = self._view.pinned_state()
        state = await self._blocking(executor, pinned.__enter__)
        try:
            await self._replay_to(executor, replay, state.applied.index)
            scanned = await self._blocking(executor, lambda: state.scan(pause_s=SCAN_PAUSE_S))
        finally:
            await asyncio.shield(
                self._blocking(executor, lambda: pinned.__exit__(None, None, None))
            )
        rebuilt = replay.view.applied()
        assert rebuilt == state.applied, f"rebuilt up to {rebuilt}, compared at {state.applied}"
        return Verified(
            from_position=replay.start.position,
            position=rebuilt.position,
            events_replayed=rebuilt.position - replay.start.position,
            rebuilt_digest=replay.view.running_digest,
            stored_digest=state.stored_digest,
            scanned_digest=scanned,
            digest_at_position=replay.wanted_digest,
        )

    async def _blocking(self, executor: Executor, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(executor, work)


def _fold(replay: _Replay, page: Sequence[JournalEntry]) -> None:
    entries = [
        Entry(found.index, found.term, found.first_position, decode_records(found.payload))
        for found in page
    ]
    before = [entry for entry in entries if entry.index <= (replay.wanted_index or 0)]
    behind = entries[len(before) :]
    for some in (before, behind):
        for batch in batches_of(some, replay.view.applied().position):
            replay.view.apply(batch)
        if replay.view.applied().index == replay.wanted_index:
            replay.wanted_digest = replay.view.running_digest
