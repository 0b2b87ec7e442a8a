"""A replicated log whose commits are timed, and traced when this process traces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

from prometheus_client import Histogram

from nextgen.replication.ports import (
    AppliedPoint,
    Commit,
    Configuration,
    Entry,
    LogPin,
    LogReader,
    LogStatus,
    MemberChange,
    NodeId,
    Record,
    ReplicatedLog,
    RoleChange,
)
from nextgen.runtime.telemetry import tracing
from shards.state.commit_trace import CommitTrace


class MeasuredLog:
    """Delegates to ``log`` and observes the seconds from proposal to commit."""

    def __init__(
        self, log: ReplicatedLog, seconds: Histogram, monotonic: Callable[[], float]
    ) -> None:
        self._log = log
        self._seconds = seconds
        self._monotonic = monotonic
        self._applying: set[asyncio.Task[None]] = set()

    @property
    def status(self) -> LogStatus:
        return self._log.status

    @property
    def is_leader(self) -> bool:
        return self._log.is_leader

    @property
    def commit_position(self) -> int:
        return self._log.commit_position

    @property
    def applied_point(self) -> AppliedPoint:
        return self._log.applied_point

    @property
    def hears_leader(self) -> bool:
        return self._log.hears_leader

    @property
    def event_level(self) -> int:
        return self._log.event_level

    def behind_event_level(self, level: int) -> Sequence[NodeId]:
        return self._log.behind_event_level(level)

    def propose(self, record: Record) -> asyncio.Future[Commit]:
        proposed_at = self._monotonic()
        commit = self._log.propose(record)
        commit.add_done_callback(partial(self._observe, proposed_at))
        if tracing.active is not None:
            self._trace(commit, record.events)
        return commit

    async def read_index(self, *, asked_at: float | None = None) -> int:
        return await self._log.read_index(asked_at=asked_at)

    async def wait_applied(self, index: int) -> None:
        await self._log.wait_applied(index)

    async def wait_position(self, position: int) -> None:
        await self._log.wait_position(position)

    def read(self, from_position: int, *, events_max: int, bytes_max: int) -> Sequence[Entry]:
        return self._log.read(from_position, events_max=events_max, bytes_max=bytes_max)

    def on_commit(self, listener: Callable[[Sequence[Entry]], None]) -> Callable[[], None]:
        return self._log.on_commit(listener)

    def on_commit_positions(self, listener: Callable[[int, int], None]) -> Callable[[], None]:
        return self._log.on_commit_positions(listener)

    def expedite_commits(self) -> Callable[[], None]:
        return self._log.expedite_commits()

    def on_role_change(self, listener: Callable[[RoleChange], None]) -> Callable[[], None]:
        return self._log.on_role_change(listener)

    async def transfer_leadership(self, target: NodeId) -> None:
        await self._log.transfer_leadership(target)

    async def change_members(self, change: MemberChange) -> Configuration:
        return await self._log.change_members(change)

    def pin(self, name: str, position: int) -> LogPin:
        return self._log.pin(name, position)

    async def pin_reader(self, reader_id: str, position: int, ttl_ms: int) -> None:
        await self._log.pin_reader(reader_id, position, ttl_ms)

    def readers(self) -> Sequence[LogReader]:
        return self._log.readers()

    async def compact(self) -> AppliedPoint:
        return await self._log.compact()

    async def stop(self) -> None:
        self.close()
        await self._log.stop()

    def close(self) -> None:
        """Stop waiting for traced commits; the log itself goes on."""
        for task in self._applying:
            task.cancel()

    def _trace(self, commit: asyncio.Future[Commit], events: int) -> None:
        span = tracing.begin("commit", events=events)
        if span is not None and span.is_recording():
            trace = CommitTrace(span, time.monotonic(), self._log, self._applying)
            commit.add_done_callback(trace.committed)

    def _observe(self, proposed_at: float, commit: asyncio.Future[Commit]) -> None:
        if not commit.cancelled() and commit.exception() is None:
            self._seconds.observe(self._monotonic() - proposed_at)
