"""Reads entries for a dispatcher: from memory at once, from disk by one read at a time."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence

from brokers.domain.position import Position
from brokers.ports.ledger import Entry, LedgerReader
from nextgen.kernel.limits.pulsar import DISPATCH_BYTES_MAX, DISPATCH_ENTRIES_MAX
from nextgen.tasks.background import start


class EntrySource:
    """Reads for one subscription. Keeps only the entries of the last read from disk.

    ``on_ready`` is called when entries that ``after`` could not return at once have been read;
    ``on_failed`` when they cannot be read.
    """

    def __init__(
        self,
        ledger: LedgerReader,
        *,
        on_ready: Callable[[], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._ledger = ledger
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._fetched_after: Position | None = None
        self._fetched: Sequence[Entry] = ()
        self._task: asyncio.Task[None] | None = None

    def after(
        self, position: Position, *, entries_max: int, bytes_max: int = DISPATCH_BYTES_MAX
    ) -> Sequence[Entry] | None:
        """Return entries strictly behind ``position``; an empty list if there are none yet.

        None: they are being read; call again after ``on_ready``.
        """
        if position >= self._ledger.last:
            return ()
        recent = self._ledger.read_recent(position, entries_max=entries_max, bytes_max=bytes_max)
        if recent is not None:
            return recent
        if (begin := self._fetched_from(position)) is not None:
            return self._fetched[begin : begin + entries_max]
        if self._task is None:
            self._task = start("subscription_read", self._fetch(position))
        return None

    def close(self) -> None:
        """Cancel the running read, and drop the entries that were read."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._fetched_after, self._fetched = None, ()

    def _fetched_from(self, position: Position) -> int | None:
        if self._fetched_after is None or not self._fetched_after <= position:
            return None
        begin = bisect_right(self._fetched, position, key=lambda entry: entry.position)
        return begin if begin < len(self._fetched) else None

    async def _fetch(self, position: Position) -> None:
        try:
            fetched = await self._ledger.read(
                position, entries_max=DISPATCH_ENTRIES_MAX, bytes_max=DISPATCH_BYTES_MAX
            )
        except Exception as error:
            # The top of a task: any failure stops the subscription, and must be reported.
            self._task = None
            self._on_failed(error)
            return
        self._task = None
        self._fetched_after, self._fetched = position, fetched
        self._on_ready()
