"""Compares exported events with those of a live log, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from nextgen.export.log_source import Committed, LogSource
from nextgen.export.report import CheckReport
from nextgen.kernel.errors import MetadataError, PositionAhead, PositionCompacted, Unavailable


class LogComparison:
    """Reads the log again for each row group, and reports differences."""

    def __init__(self, log: LogSource, known: Mapping[int, Committed], report: CheckReport) -> None:
        self._log = log
        self._known = known
        self._report = report
        self._left_out: set[int] = set()
        self._oldest: dict[int, int] = {}
        self.is_complete = True
        """Whether every event that the logs still have was compared."""

    async def compare(self, shard_id: int, path: str, events: Sequence[Any]) -> None:
        """Compare events of one file, which are in order."""
        if not events or shard_id in self._left_out:
            return
        if shard_id not in self._known:
            self._leave_out(shard_id)
            return
        first = max(events[0].position, self._oldest.get(shard_id, 0))
        try:
            if first <= events[-1].position:
                await self._compare_from(first, shard_id, path, events)
        except PositionCompacted as error:
            self._oldest[shard_id] = max(error.oldest, first + 1)
            await self.compare(shard_id, path, events)
            return
        except PositionAhead as error:
            self._differ(path, f"goes up to {events[-1].position}, the log ends at {error.last}")
        except MetadataError as error:
            self._leave_out(shard_id)
            self._report.find(f"shard {shard_id} was not compared from {first} on: {error}")
        self._report.not_retained_events += min(len(events), max(0, first - events[0].position))

    async def _compare_from(
        self, first: int, shard_id: int, path: str, events: Sequence[Any]
    ) -> None:
        rest = iter(events[first - events[0].position :])
        wanted = events[-1].position - first + 1
        differing: list[int] = []
        compared = 0
        # Read up to the commit position: a replica that is behind will reach it. Waiting for a
        # later position might never end.
        is_committed = (self._known[shard_id].position or 0) >= events[-1].position
        read = self._log.pages(shard_id, first, follow=is_committed, limit=wanted)
        async with aclosing(read) as pages:
            async for page in pages:
                for committed, exported in zip(page.events, rest, strict=False):
                    compared += 1
                    if committed != exported:
                        differing.append(committed.position)
        self._report.compared_events += compared
        if compared < wanted:
            if not self._known[shard_id].by_leader:
                raise Unavailable("no leader reports its commit position")
            differing.append(first + compared)
        if differing:
            self._report.differences += len(differing)
            self._report.find(
                f"{path}: event {differing[0]} is not that of the log"
                + (f", nor are {len(differing) - 1} others" if len(differing) > 1 else "")
            )

    def _leave_out(self, shard_id: int) -> None:
        self._left_out.add(shard_id)
        self.is_complete = False

    def _differ(self, path: str, what: str) -> None:
        self._report.differences += 1
        self._report.find(f"{path} {what}")
