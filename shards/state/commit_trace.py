"""The spans of one commit, from its proposal until the leader's view has it.

commit ─┬─ queue      until an entry took the record up: group commit
        ├─ fsync      of that entry on the leader's own disk, if the leader waited for it
        ├─ replicate  from the append until a majority has it on disk
        └─ apply      until the leader's view has folded it
"""

from __future__ import annotations

import asyncio
import time

from opentelemetry.trace import Span

from nextgen.kernel.errors import MetadataError
from nextgen.replication.ports import Commit, ReplicatedLog
from nextgen.runtime.telemetry import tracing
from nextgen.tasks.background import start


class CommitTrace:
    """Traces one sampled proposal. ``applying`` owns the tasks that wait for the view."""

    def __init__(
        self,
        span: Span,
        proposed_at: float,
        log: ReplicatedLog,
        applying: set[asyncio.Task[None]],
    ) -> None:
        self._span = span
        self._proposed_at = proposed_at
        self._log = log
        self._applying = applying

    def committed(self, future: asyncio.Future[Commit]) -> None:
        """End the span of the commit with its steps; then wait for the view."""
        now = time.monotonic()
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            if error is not None:
                tracing.fail(self._span, error)
            tracing.end(self._span, now)
            return
        commit = future.result()
        self._span.set_attribute("index", commit.index)
        self._span.set_attribute("term", commit.term)
        self._span.set_attribute("position", commit.first_position)
        if commit.appended_at:
            tracing.record("queue", self._proposed_at, commit.appended_at, self._span)
            tracing.record("replicate", commit.appended_at, now, self._span)
        if commit.durable_at:
            tracing.record("fsync", commit.appended_at, commit.durable_at, self._span)
        tracing.end(self._span, now)
        start("commit_trace", self._apply(commit.index, now), self._applying)

    async def _apply(self, index: int, committed_at: float) -> None:
        try:
            await self._log.wait_applied(index)
        except MetadataError:
            return  # The replica stops and applies nothing more.
        tracing.record("apply", committed_at, time.monotonic(), self._span)
