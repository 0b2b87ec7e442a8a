"""Carries out leader spreading: keeps what was tried, and looks again when there is reason to."""

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

Situation = tuple[Sequence[Placement], Mapping[int, Leadership], AbstractSet[str]]


class LeaderSpreader:
    """Asks for transfers one at a time. One instance per term.

    ``situation`` gives placements, leaders and the connected nodes; ``send`` asks the present
    leader to hand over. Nothing is polled: a timer runs only while something is known to become
    due.
    """

    def __init__(
        self, clock: Clock, situation: Callable[[], Situation], send: Callable[[Transfer], None]
    ) -> None:
        self._clock = clock
        self._situation = situation
        self._send = send
        self._attempts: dict[int, Attempt] = {}
        self._cancel_timer: Callable[[], None] | None = None
        self._is_stopped = False

    def look(self) -> None:
        """Look at the situation: call after each change of it."""
        if self._is_stopped:
            return
        self._drop_timer()
        placements, leaders, connected = self._situation()
        now_ms = self._clock.monotonic_ms()
        step = next_step(placements, leaders, connected, self._attempts, now_ms)
        if step.transfer is not None:
            self._attempts[step.transfer.shard_id] = Attempt(step.transfer.leader, now_ms)
            self._send(step.transfer)
        if step.look_again_at_ms is not None:
            self._cancel_timer = self._clock.call_at(step.look_again_at_ms, self.look)

    def stop(self) -> None:
        """Ask for nothing any more."""
        self._is_stopped = True
        self._drop_timer()

    def _drop_timer(self) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None
