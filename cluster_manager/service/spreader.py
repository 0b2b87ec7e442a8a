"""Runs leader spreading: requests transfers, remembers attempts, and decides again when needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from cluster_manager.domain.leader_spread import (
    Attempt,
    Leadership,
    Transfer,
    next_step,
)
from cluster_manager.domain.shard_map import Placement
from cluster_manager.ports import Clock

LOOK_PAUSE_MS = 5
"""A decision looks at every shard. When a thousand leaders report themselves at once, it is made
once for all that come within this time, and not a thousand times."""

Situation = tuple[Sequence[Placement], Mapping[int, Leadership], AbstractSet[str]]


class LeaderSpreader:
    """Requests transfers one at a time. One instance per term.

    ``situation`` gives placements, leaders and the connected nodes; ``send`` requests a transfer
    from the present leader. There is no polling: a timer runs only if a decision is due at a known
    time.
    """

    def __init__(
        self, clock: Clock, situation: Callable[[], Situation], send: Callable[[Transfer], None]
    ) -> None:
        self._clock = clock
        self._situation = situation
        self._send = send
        self._attempts: dict[int, Attempt] = {}
        self._looked_at_ms: int | None = None
        self._cancel_timer: Callable[[], None] | None = None
        self._is_stopped = False

    def look(self) -> None:
        """Decide on the present situation, at most each ``LOOK_PAUSE_MS``.

        Call it after each change of the situation.
        """
        if self._is_stopped:
            return
        self._drop_timer()
        now_ms = self._clock.monotonic_ms()
        if self._looked_at_ms is not None and now_ms < self._looked_at_ms + LOOK_PAUSE_MS:
            due_ms = self._looked_at_ms + LOOK_PAUSE_MS
            self._cancel_timer = self._clock.call_at(due_ms, self.look)
            return
        self._looked_at_ms = now_ms
        placements, leaders, connected = self._situation()
        step = next_step(placements, leaders, connected, self._attempts, now_ms)
        if step.transfer is not None:
            self._attempts[step.transfer.shard_id] = Attempt(step.transfer.leader, now_ms)
            self._send(step.transfer)
        if step.look_again_at_ms is not None:
            self._cancel_timer = self._clock.call_at(step.look_again_at_ms, self.look)

    def stop(self) -> None:
        """Request no further transfer."""
        self._is_stopped = True
        self._drop_timer()

    def _drop_timer(self) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None
