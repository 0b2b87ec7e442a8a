"""How long a shard's leader keeps the outcomes of commands: by its own monotonic clock.

The leader orders what is forgotten, in the records that it proposes anyway; every replica obeys
(ADR 0053). A leader knows nothing of the time before its term, so it keeps for the whole window
what its predecessors recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from nextgen.kernel.limits.outcome import OUTCOME_WINDOW_MS, OUTCOME_WINDOW_POSITIONS

OUTCOME_ORDERS_LEVEL = 4
"""Level of the records with an order (``nextgen.kernel.events.levels``): an earlier program would
pass over it, and its view would differ."""

SAMPLE_MS = 1_000
"""Time between two orders of a leader, and how much longer than necessary an outcome is kept."""


class OutcomeRetention:
    """What one leader orders, for one term. ``monotonic`` is in seconds."""

    def __init__(self, monotonic: Callable[[], float], position: int) -> None:
        self._monotonic = monotonic
        self._samples = deque([(monotonic(), position)])
        self._next_at = 0.0

    def __repr__(self) -> str:
        return f"<OutcomeRetention samples={len(self._samples)}>"

    def order(self, position: int) -> int:
        """Return from which position on outcomes are kept, 0 if there is nothing to order yet.

        ``position`` is the last that is known to be committed. The first order of a term may ask
        for nothing to be forgotten: from it on outcomes are kept by time.
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
        # Whatever is recorded behind that moment stands at ``aged`` or later: a rejection moves
        # no position.
        return max(1, min(aged, position - OUTCOME_WINDOW_POSITIONS + 1))
