"""Counters of lookup outcomes since the start, and their windows of a minute.

    answered ─▶ LookupTally (since the start) ─ each minute ─▶ LookupWindows ─▶ LookupWindow

Answering costs two additions. A window is the difference of two readings of the tally.
"""

from __future__ import annotations

from bisect import bisect_left

from nextgen.kernel.governance.lookup_slo import (
    LATENCY_CLASSES,
    LOOKUP_MS_MAX,
    LOOKUP_WINDOW_BOUNDS_MS,
    LOOKUP_WINDOW_MS,
    NO_LOOKUPS,
    LookupWindow,
)


class LookupTally:
    """Lookups by the latency that clients saw, and the number of our failures.

    A name counts once, when it is answered. Names of one message have the message's latency,
    because they are answered together.
    """

    __slots__ = ("at_once", "errors", "latency_counts", "latency_sum_ms")

    def __init__(self) -> None:
        self.at_once = 0
        """Answered from the cache as the request was read: in the first class of latency."""
        self.errors = 0
        self.latency_counts = [0] * LATENCY_CLASSES
        self.latency_sum_ms = 0.0

    def add(self, latency_ms: float, *, lookups: int = 1, failed: int = 0) -> None:
        """Count answered names, ``failed`` of them with an error of ours."""
        self.latency_counts[bisect_left(LOOKUP_WINDOW_BOUNDS_MS, latency_ms)] += lookups
        self.latency_sum_ms += latency_ms * lookups
        self.errors += lookups if latency_ms > LOOKUP_MS_MAX else failed

    def given_up(self, latency_ms: float, *, lookups: int = 1) -> None:
        """Count names whose callers gave up, if they had waited longer than ``LOOKUP_MS_MAX``."""
        if latency_ms > LOOKUP_MS_MAX:
            self.add(latency_ms, lookups=lookups)

    def counts(self) -> tuple[int, ...]:
        """Return all names by class of latency."""
        first, *others = self.latency_counts
        return (first + self.at_once, *others)


class LookupWindows:
    """Cuts one process's tally into windows. Pure: callers pass the time, in Unix milliseconds."""

    def __init__(self, node_id: str, process: str, now_ms: int) -> None:
        self._node_id = node_id
        self._process = process
        self._began_at_ms = _minute(now_ms)
        self._counts: tuple[int, ...] = NO_LOOKUPS
        self._errors = 0

    @property
    def ends_at_ms(self) -> int:
        """When the open window ends."""
        return self._began_at_ms + LOOKUP_WINDOW_MS

    def advance(self, now_ms: int, tally: LookupTally) -> LookupWindow | None:
        """Return the window that has ended by ``now_ms``; None if none has, or it is empty.

        A clock that was set back keeps the window open until its end comes again. After a pause
        of more than a minute everything belongs to the window that was open before it.
        """
        return self._close(now_ms, tally) if now_ms >= self.ends_at_ms else None

    def finish(self, now_ms: int, tally: LookupTally) -> LookupWindow | None:
        """Return the open window before its end, because the process stops."""
        return self._close(now_ms, tally)

    def _close(self, now_ms: int, tally: LookupTally) -> LookupWindow | None:
        counts, errors = tally.counts(), tally.errors
        window = LookupWindow(
            node_id=self._node_id,
            process=self._process,
            began_at_ms=self._began_at_ms,
            errors=errors - self._errors,
            latency_counts=tuple(
                now - before for now, before in zip(counts, self._counts, strict=True)
            ),
        )
        self._counts, self._errors = counts, errors
        self._began_at_ms = max(self._began_at_ms, _minute(now_ms))
        return window if window.lookups else None


def _minute(now_ms: int) -> int:
    return now_ms - now_ms % LOOKUP_WINDOW_MS
