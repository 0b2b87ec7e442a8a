"""Measures how long a journal's syncs take, and how long the oldest change has waited."""

from __future__ import annotations

import asyncio
import time

from nextgen.replication.journal.journal import Journal
from nextgen.replication.statistics import ReplicaStatistics


class SyncWatch:
    """Times each sync. ``age_ms`` shows a stuck disk."""

    def __init__(self, journal: Journal, statistics: ReplicaStatistics) -> None:
        self._journal = journal
        self._statistics = statistics
        self._loop = asyncio.get_running_loop()
        self._began_at: float | None = None
        self._measured_from = 0.0

    @property
    def age_ms(self) -> float:
        """Since when the oldest change waits for the disk, 0 if none does."""
        if self._began_at is None:
            return 0.0
        return (self._loop.time() - self._began_at) * 1000

    def changed(self) -> None:
        """Note that the journal has something to write."""
        if self._began_at is None:
            self._began_at = self._loop.time()
            # The loop's own clock stands still within a turn, some milliseconds at times.
            self._measured_from = time.monotonic()
            self._journal.when_durable(self._synced)

    def _synced(self) -> None:
        self._statistics.add_sync(time.monotonic() - self._measured_from)
        self._began_at = None
        if self._journal.durable_index < self._journal.last_index:
            self.changed()
