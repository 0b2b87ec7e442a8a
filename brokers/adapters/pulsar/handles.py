"""Common parts of the producers and consumers of one connection: ids, limits, memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from nextgen.kernel.limits.pulsar import CLOSED_HANDLE_MS, HANDLES_PER_CONNECTION_MAX


class ClosedIds:
    """Ids that the broker has closed, for which the client may still be sending commands."""

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[int, float] = {}

    def add(self, handle_id: int) -> None:
        """Remember an id for ``CLOSED_HANDLE_MS``."""
        now = self._clock()
        # Check the two oldest ids for each new one, so that expired ids do not accumulate.
        for oldest, until in list(islice(self._until.items(), 2)):
            if until <= now or len(self._until) >= HANDLES_PER_CONNECTION_MAX:
                del self._until[oldest]
        self._until.pop(handle_id, None)
        self._until[handle_id] = now + CLOSED_HANDLE_MS / 1000

    def discard(self, handle_id: int) -> None:
        """Forget an id, because the client uses it again."""
        self._until.pop(handle_id, None)

    def __contains__(self, handle_id: int) -> bool:
        until = self._until.get(handle_id)
        return until is not None and until > self._clock()
