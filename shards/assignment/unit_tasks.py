"""Background work on one shard's units, ended with the term."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.tasks.background import start
from shards.assignment.unit_flight import Flights


class UnitTasks:
    """Runs the work of lookups and moves, which continues when the caller gives up."""

    def __init__(self, shard_id: int, flights: Flights) -> None:
        self._shard_id = shard_id
        self._flights = flights
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed: MetadataError | None = None

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` to its end or to the end of the term.

        If it fails, every unit in flight fails: none may be left without an answer.
        """
        start("assignment", work, self._tasks, on_failure=self._failed, expected=MetadataError)

    def check_open(self) -> None:
        """Check that the term goes on.

        Raises:
            MetadataError: ``close`` was called with it.
        """
        if self._closed is not None:
            raise self._closed

    def close(self, error: MetadataError) -> None:
        """Stop all work; every unit in flight fails with ``error``."""
        self._closed = error
        for task in self._tasks:
            task.cancel()
        self._flights.fail_all(error)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, MetadataError):
            # The term is over; the log reports it a moment later.
            self._flights.fail_all(error)
        else:
            # A bug. Its callers get an error rather than no answer.
            self._flights.fail_all(Unavailable(f"shard {self._shard_id} broke: {error!r}"))
