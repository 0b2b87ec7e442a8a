"""When shards are split and merged by themselves: by their topics and commands a second.

    fullness of a shard  =  the larger of  topics / topics_max  and  commands a second / its maximum

    split   the fullest shard, fuller than 1 for five minutes
    merge   the two emptiest shards, both less than 0.4 full for an hour: the emptier one goes

Halves of a shard that was split are fuller than 0.4, and a merged shard is less than 0.8 full, so
no split causes a merge or the reverse. Behind a plan that was made so there is a pause, a longer
one if the plan was stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster_manager.domain.shard_map import ShardMap
from cluster_manager.domain.slot_moves.planning import PlanSlots
from cluster_manager.domain.slot_moves.plans import PlanKind, PlanPhase, Plans
from nextgen.kernel.limits.cluster import SHARDS_MAX
from nextgen.kernel.limits.placement import (
    SHARD_FULL_MS,
    SHARD_IDLE_FULLNESS,
    SHARD_IDLE_MS,
    SHARD_PLAN_FAILED_PAUSE_MS,
    SHARD_PLAN_PAUSE_MS,
)


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """What a shard may have before it is split; 0: any number."""

    topics_max: int = 0
    commands_per_second_max: float = 0

    @property
    def are_on(self) -> bool:
        return bool(self.topics_max or self.commands_per_second_max)


@dataclass(frozen=True, slots=True)
class Size:
    """A shard's last reported size."""

    topics: int
    commands_per_second: float

    def fullness(self, limits: SizeLimits) -> float:
        parts = (
            (self.topics, limits.topics_max),
            (self.commands_per_second, limits.commands_per_second_max),
        )
        return max((has / most for has, most in parts if most), default=0.0)


@dataclass(frozen=True, slots=True)
class Since:
    """Since when, by a monotonic clock, each shard is full, or idle. Others are neither."""

    full_ms: Mapping[int, int] = field(default_factory=dict)
    idle_ms: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moment:
    """When it is, by the two clocks that the cluster manager has."""

    monotonic_ms: int
    unix_ms: int


def observed(since: Since, sizes: Mapping[int, Size], limits: SizeLimits, now_ms: int) -> Since:
    """Return since when shards are full or idle, by their present ``sizes``.

    A shard of which no size is known begins anew.
    """
    fullness = {shard_id: size.fullness(limits) for shard_id, size in sizes.items()}
    return Since(
        {
            shard_id: since.full_ms.get(shard_id, now_ms)
            for shard_id, full in fullness.items()
            if full > 1
        },
        {
            shard_id: since.idle_ms.get(shard_id, now_ms)
            for shard_id, full in fullness.items()
            if full < SHARD_IDLE_FULLNESS
        },
    )


def next_wish(
    since: Since,
    sizes: Mapping[int, Size],
    limits: SizeLimits,
    plans: Plans,
    shard_map: ShardMap,
    shards_min: int,
    now: Moment,
) -> PlanSlots | None:
    """Return the split or merge that is due, None if there is none or a plan is under way.

    Never more than ``SHARDS_MAX`` shards, and never fewer than ``shards_min`` that have slots.
    """
    if not limits.are_on or _is_pause(plans, now.unix_ms):
        return None
    slots = {shard_id: len(shard_map.table.slots_of(shard_id)) for shard_id in shard_map.shard_ids}
    split = _split(since, sizes, limits, plans, slots, now.monotonic_ms)
    if split is not None:
        return split
    # While a shard is too full, or soon will be known to be, nothing is merged.
    if since.full_ms:
        return None
    return _merge(since, sizes, limits, plans, slots, shards_min, now.monotonic_ms)


def _is_pause(plans: Plans, now_ms: int) -> bool:
    latest = plans.latest
    if latest is None:
        return False
    if not latest.has_ended:
        return True
    if not latest.is_automatic:
        return False
    was_stopped = latest.phase is PlanPhase.STOPPED
    pause_ms = SHARD_PLAN_FAILED_PAUSE_MS if was_stopped else SHARD_PLAN_PAUSE_MS
    return now_ms - latest.ended_at_ms < pause_ms


def _split(
    since: Since,
    sizes: Mapping[int, Size],
    limits: SizeLimits,
    plans: Plans,
    slots: Mapping[int, int],
    now_ms: int,
) -> PlanSlots | None:
    has_unused = any(not slots.get(shard_id) for shard_id in plans.retired)
    if len(slots) >= SHARDS_MAX and not has_unused:
        return None
    due = [
        shard_id
        for shard_id, full_ms in since.full_ms.items()
        if now_ms - full_ms >= SHARD_FULL_MS and slots.get(shard_id, 0) >= 2
    ]
    if not due:
        return None
    fullest = max(due, key=lambda shard_id: (sizes[shard_id].fullness(limits), -shard_id))
    return PlanSlots(
        PlanKind.SPLIT,
        fullest,
        is_automatic=True,
        reason=f"shard {fullest} has {_shown(sizes[fullest])}",
    )


def _merge(
    since: Since,
    sizes: Mapping[int, Size],
    limits: SizeLimits,
    plans: Plans,
    slots: Mapping[int, int],
    shards_min: int,
    now_ms: int,
) -> PlanSlots | None:
    active = [shard_id for shard_id, count in slots.items() if count]
    if len(active) <= max(1, shards_min):
        return None
    due = [
        shard_id
        for shard_id, idle_ms in since.idle_ms.items()
        if now_ms - idle_ms >= SHARD_IDLE_MS
        and slots.get(shard_id)
        and shard_id not in plans.retired
    ]
    due.sort(key=lambda shard_id: (sizes[shard_id].fullness(limits), shard_id))
    if len(due) < 2:
        return None
    source, target = due[:2]
    return PlanSlots(
        PlanKind.MERGE,
        source,
        target,
        is_automatic=True,
        reason=f"shard {source} has {_shown(sizes[source])}, "
        f"shard {target} has {_shown(sizes[target])}",
    )


def _shown(size: Size) -> str:
    return f"{size.topics:,} topics and {size.commands_per_second:,.0f} commands a second"
