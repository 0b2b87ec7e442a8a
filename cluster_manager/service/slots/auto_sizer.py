"""Splits and merges shards by themselves, as the settings say: see ``slot_moves.automatic``.

How long a shard has been full or idle is soft state: a new leader waits as long again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from cluster_manager.domain.cluster import ClusterEvent, ClusterState, decide_plan_slots
from cluster_manager.domain.slot_moves.automatic import (
    Moment,
    Since,
    Size,
    SizeLimits,
    next_wish,
    observed,
)
from cluster_manager.domain.slot_moves.planning import PlanContext
from cluster_manager.ports import Clock
from cluster_manager.service.slots.size_board import SizeBoard
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.governance.service_settings import lenient
from nextgen.kernel.limits.placement import SHARD_SIZES_MS

_logger = structlog.get_logger(__name__)


class Term(Protocol):
    """The part of the leader's term that is used here."""

    pending: ClusterState

    def propose(self, events: Sequence[ClusterEvent]) -> object: ...

    def plan_context(self) -> PlanContext: ...


class AutoSizer:
    """Looks at the sizes every ``SHARD_SIZES_MS``. One instance per term."""

    def __init__(self, term: Term, sizes: SizeBoard, clock: Clock, shards_min: int) -> None:
        """``shards_min``: the number of shards with slots below which none are merged."""
        self._term = term
        self._sizes = sizes
        self._clock = clock
        self._shards_min = shards_min
        self._since = Since()
        self._cancel: Callable[[], None] = lambda: None
        self._look_later()

    def __repr__(self) -> str:
        return f"<AutoSizer full={len(self._since.full_ms)} idle={len(self._since.idle_ms)}>"

    def stop(self) -> None:
        """Plan nothing more."""
        self._cancel()

    def look(self) -> None:
        """Make the plan that is due, if there is one."""
        self._look_later()
        state = self._term.pending
        limits = limits_of(state)
        now = Moment(self._clock.monotonic_ms(), self._clock.unix_ms())
        if state.shard_map is None or not limits.are_on:
            self._since = Since()
            return
        sizes = {
            shard_id: Size(size.topics, size.commands_per_second)
            for shard_id, size in self._sizes.fresh(now.monotonic_ms).items()
        }
        self._since = observed(self._since, sizes, limits, now.monotonic_ms)
        wish = next_wish(
            self._since, sizes, limits, state.plans, state.shard_map, self._shards_min, now
        )
        if wish is None:
            return
        decision = decide_plan_slots(state, wish, self._term.plan_context())
        if isinstance(decision, Rejected):
            _logger.warning("a shard is not resized", why=decision.message, wanted=wish.reason)
            return
        _logger.info("slots planned", kind=wish.kind.value, shard=wish.shard_id, why=wish.reason)
        try:
            self._term.propose(decision.events)
        except MetadataError as error:
            _logger.info("a shard is not resized yet", why=str(error))

    def _look_later(self) -> None:
        due_ms = self._clock.monotonic_ms() + SHARD_SIZES_MS
        self._cancel = self._clock.call_at(due_ms, self.look)


def limits_of(state: ClusterState) -> SizeLimits:
    """Return the limits that the settings of the cluster give its shards."""
    sizing = lenient(state.configuration.settings).shard_sizing
    return SizeLimits(sizing.topics_max, sizing.commands_per_second_max)
