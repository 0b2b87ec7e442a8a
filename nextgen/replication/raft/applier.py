"""Folds committed entries into the view, on a worker thread, in batches, in order.

A commit is not folded at once unless a caller waits for it or much waits: answers go out first,
and entries that are committed meanwhile share the transaction. A transaction costs as much as
dozens of events in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from nextgen.kernel.limits.cluster import (
    APPLY_AT_ONCE_EVENTS,
    APPLY_BATCH_BYTES_MAX,
    ENTRIES_PER_MESSAGE_MAX,
)
from nextgen.replication.journal.journal import JournalEntry
from nextgen.replication.ports import AppliedPoint, Entry, StateMachine
from nextgen.replication.protocol.entry_codec import decode_records
from nextgen.replication.view.digest import next_digest_position
from nextgen.replication.view.turns import ViewTurns
from nextgen.tasks.background import start

COMMIT_TIMES_MAX = 1_024
"""Commits whose time is remembered for the view's age; beyond it neighbours share a time."""

_logger = logging.getLogger(__name__)


class AppliedLog(Protocol):
    """The reads of the log that the applier needs."""

    @property
    def base_index(self) -> int: ...
    def entries(self, from_index: int, to_index: int, bytes_max: int) -> Sequence[JournalEntry]: ...
    def index_of_position(self, position: int) -> int: ...


class Applier:
    """Applies entries to one view. ``kick`` sets the entry up to which it may fold.

    An entry is folded ``delay_ms`` after its commit, or at once while ``is_awaited`` returns True
    or ``APPLY_AT_ONCE_EVENTS`` wait; call ``kick`` when ``is_awaited`` becomes True.

    ``on_applied`` is called on the loop after each batch. ``on_broken`` is called once, when
    the view cannot follow: an error that is not a full disk.
    """

    def __init__(
        self,
        log: AppliedLog,
        state_machine: StateMachine,
        *,
        applied: AppliedPoint,
        turns: ViewTurns,
        delay_ms: int = 0,
        retry_ms: int,
        is_awaited: Callable[[], bool] = lambda: True,
        on_applied: Callable[[AppliedPoint], None],
        on_broken: Callable[[Exception], None],
    ) -> None:
        self._log = log
        self._state_machine = state_machine
        self._turns = turns
        self._delay_s = delay_ms / 1000
        self._retry_s = retry_ms / 1000
        self._is_awaited = is_awaited
        self._on_applied = on_applied
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        self._limit = applied.index
        self._committed_position = applied.position
        self._commit_times: deque[tuple[int, float]] = deque()
        self.awaits_snapshot = applied.index < log.base_index
        """True while the view ends before the log begins, so that only a snapshot helps."""
        self._paused = self.awaits_snapshot
        self._batch_began_at: float | None = None
        self.applied = applied
        self.stalled: str | None = None
        """Why the view does not follow at the moment: its disk refuses. None when all is well."""

    def committed(self, index: int, position: int) -> None:
        """Remember when ``index``, whose last event is ``position``, was committed."""
        self._committed_position = position
        now = self._loop.time()
        if len(self._commit_times) >= COMMIT_TIMES_MAX:
            _, now = self._commit_times.pop()
        self._commit_times.append((index, now))

    @property
    def lag_ms(self) -> float:
        """Age of the oldest committed entry that the view has not folded, 0 for none."""
        committed_at = self._oldest_commit()
        return 0.0 if committed_at is None else (self._loop.time() - committed_at) * 1000

    @property
    def batch_ms(self) -> float:
        """Duration of the batch in progress so far, 0 without one: it grows while a view hangs."""
        if self._batch_began_at is None:
            return 0.0
        return (self._loop.time() - self._batch_began_at) * 1000

    def kick(self, limit_index: int) -> None:
        """Fold up to ``limit_index``: committed, and on this replica's disk."""
        self._limit = max(self._limit, limit_index)
        if self._task is None and self._has_work:
            due_s = self._due_s()
            if due_s <= 0:
                self._begin()
            elif self._due is None:
                self._due = self._loop.call_later(due_s, self._begin)

    async def pause(self) -> None:
        """Return when no fold is in progress; none begins until ``resume_from``."""
        self._paused = True
        self._forget_due()
        if self._task is not None:
            await asyncio.wait([self._task])

    def resume_from(self, applied: AppliedPoint) -> None:
        """Continue behind ``applied``, the point of the installed snapshot."""
        self._paused = self.awaits_snapshot = applied.index < self._log.base_index
        self.applied = applied
        self._limit = max(self._limit, applied.index)
        self._on_applied(applied)
        self.kick(self._limit)

    async def stop(self) -> None:
        """Return when the batch under way is folded; nothing starts after it."""
        await self.pause()

    def abandon(self) -> None:
        """Start no further batch, without waiting for the one in progress."""
        self._paused = True
        self._forget_due()
        if self._task is not None:
            self._task.cancel()

    @property
    def is_folding(self) -> bool:
        """True while a batch is being folded, or is about to be."""
        return self._task is not None

    @property
    def _has_work(self) -> bool:
        return not self._paused and self.applied.index < self._limit

    def _oldest_commit(self) -> float | None:
        """Return when the oldest entry that is not folded was committed, if that is known."""
        while self._commit_times and self._commit_times[0][0] <= self.applied.index:
            self._commit_times.popleft()
        return self._commit_times[0][1] if self._commit_times else None

    def _due_s(self) -> float:
        """Return in how many seconds the next batch is due, 0 or less for at once."""
        committed_at = self._oldest_commit()
        waiting = self._committed_position - self.applied.position
        if committed_at is None or waiting >= APPLY_AT_ONCE_EVENTS or self._is_awaited():
            return 0.0
        return committed_at + self._delay_s - self._loop.time()

    def _forget_due(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _begin(self) -> None:
        self._forget_due()
        if self._task is None and self._has_work:
            self._task = start("view", self._run())

    async def _run(self) -> None:
        try:
            await self._apply_next()
            while self._has_work and self._due_s() <= 0:
                await self._apply_next()
        except Exception as error:
            _logger.critical("a view cannot follow its log", exc_info=True)
            self._paused = True
            self._on_broken(error)
        finally:
            self._task = None
        self.kick(self._limit)

    async def _apply_next(self) -> None:
        first = self.applied.index + 1
        # Every replica takes its digest behind the same entry: a batch ends there.
        reaches = self._log.index_of_position(next_digest_position(self.applied.position))
        up_to = min(self._limit, first + ENTRIES_PER_MESSAGE_MAX - 1, reaches)
        batch = self._log.entries(first, up_to, APPLY_BATCH_BYTES_MAX)
        assert batch, f"entry {first} is not in the log"
        self._batch_began_at = self._loop.time()
        try:
            last = await self._turns.run(
                _fold, self._state_machine, batch, is_awaited=self._is_awaited
            )
        except OSError as error:
            self._batch_began_at = None
            if self.stalled is None:
                _logger.error("the view's disk refuses: %s; trying again and again", error)
            self.stalled = f"the view's disk refuses: {error}"
            await asyncio.sleep(self._retry_s)
            return
        self.stalled = self._batch_began_at = None
        self.applied = AppliedPoint(last.index, last.term, last.next_position - 1)
        self._on_applied(self.applied)


def _fold(state_machine: StateMachine, batch: Sequence[JournalEntry]) -> Entry:
    entries = [
        Entry(found.index, found.term, found.first_position, decode_records(found.payload))
        for found in batch
    ]
    state_machine.apply(entries)
    return entries[-1]
