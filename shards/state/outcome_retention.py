"""How long a shard's leader keeps the outcomes of commands: by its own monotonic clock.

The records of the leader carry the order to forget, and every replica obeys (ADR 0053). A leader
cannot measure the time before its term, so it keeps the outcomes of its predecessors for the whole
window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from nextgen.kernel.limits.write import OUTCOME_WINDOW_MS, OUTCOME_WINDOW_POSITIONS

OUTCOME_ORDERS_LEVEL = 4
"""The level of records with an order (``nextgen.kernel.events.levels``): an earlier program would
ignore the order, and its view would differ."""

SAMPLE_MS = 1_000
"""Time between two orders of a leader, and how much longer than necessary an outcome is kept."""


class OutcomeRetention:
    """The orders of one leader, for one term. ``monotonic`` is in seconds."""

    def __init__(self, monotonic: Callable[[], float], position: int) -> None:
        self._monotonic = monotonic
        self._samples = deque([(monotonic(), position)])
        self._next_at = 0.0

    def __repr__(self) -> str:
        return f"<OutcomeRetention samples={len(self._samples)}>"

    def order(self, position: int) -> int:
        """Return the position from which on outcomes are kept, 0 if no order is due.

        ``position`` is the last that is known to be committed. The first order of a term may be 1,
        which forgets nothing but begins to keep outcomes by time.
        """
        now = self._monotonic()
        if now < self._next_at:
            return 0
        self._next_at = now + SAMPLE_MS / 1_000
        samples = self._samples
        samples.append((now, position))
        window_s = OUTCOME_WINDOW_MS / 1_000
        while len(samples) > 1 and samples[1][0] <= now - window_s:
            samples.popleft()
        seen_at, aged = samples[0]
        if seen_at > now - window_s:
            return 1
        # Outcomes recorded after that moment have the position ``aged`` or a later one: a rejection
        # advances no position.
        return max(1, min(aged, position - OUTCOME_WINDOW_POSITIONS + 1))
