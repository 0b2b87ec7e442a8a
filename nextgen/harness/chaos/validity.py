"""Decides whether a run is valid: enough traffic and enough faults. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from nextgen.harness.chaos.schedule import FaultKind

MINUTES_PER_FAULT = 3
"""Each kind of fault must happen at least once per this many minutes, and once in any run."""

OPERATIONS_PER_SECOND_MIN = 5
ACKED_PER_SECOND_MIN = 2
"""Minimum averages over the run. With less traffic a fault cannot be judged."""

OBSERVATIONS_MIN_PER_MINUTE = 10
"""Minimum number of events that watchers must receive."""

LAYOUT_CHANGES_MIN_PER_MINUTE = 5
"""Minimum number of acknowledged splits, merges and rebuckets of scalable topics, where there are
such topics."""

RENAMES_MIN_PER_MINUTE = 3
"""Minimum number of acknowledged renames of topics."""


NOTHING_HAPPENED: Mapping[FaultKind, int] = MappingProxyType({})


def faults_needed(minutes: float) -> int:
    """Return how often each kind must happen in a run of this length."""
    return max(1, int(minutes // MINUTES_PER_FAULT))


def invalid_because(
    *,
    minutes: float,
    lasted_s: float,
    operations: int,
    acked: int,
    observed: int,
    renames: int,
    available: Iterable[FaultKind],
    happened: Mapping[FaultKind, int],
    missing: Mapping[FaultKind, str],
    available_to_brokers: Iterable[FaultKind] = (),
    happened_to_brokers: Mapping[FaultKind, int] = NOTHING_HAPPENED,
    layout_changes: int | None = None,
) -> list[str]:
    """Return a sentence for each reason why a run is not valid.

    ``minutes`` is the planned length, ``lasted_s`` the actual one. ``missing`` has the required
    kinds of faults that could not be made, with reasons. ``layout_changes`` None: the load has no
    scalable topics.
    """
    reasons = [
        f"no {kind} could be made here ({why}); --allow-missing-faults leaves it out"
        for kind, why in missing.items()
    ]
    if operations < OPERATIONS_PER_SECOND_MIN * lasted_s:
        needed = int(OPERATIONS_PER_SECOND_MIN * lasted_s)
        reasons.append(f"only {operations} operations, {needed} are needed")
    if acked < ACKED_PER_SECOND_MIN * lasted_s:
        needed = int(ACKED_PER_SECOND_MIN * lasted_s)
        reasons.append(f"only {acked} operations were acknowledged, {needed} are needed")
    if observed < OBSERVATIONS_MIN_PER_MINUTE * lasted_s / 60:
        needed = int(OBSERVATIONS_MIN_PER_MINUTE * lasted_s / 60)
        reasons.append(f"watchers saw only {observed} events, {needed} are needed")
    needed = int(RENAMES_MIN_PER_MINUTE * lasted_s / 60)
    if renames < needed:
        reasons.append(f"only {renames} topics were renamed, {needed} are needed")
    needed = int(LAYOUT_CHANGES_MIN_PER_MINUTE * lasted_s / 60)
    if layout_changes is not None and layout_changes < needed:
        reasons.append(f"only {layout_changes} layouts were changed, {needed} are needed")
    needed = faults_needed(minutes)
    for kind in available:
        count = happened.get(kind, 0)
        if count < needed:
            reasons.append(f"{kind} happened {count} times, {needed} are needed")
    for kind in available_to_brokers:
        count = happened_to_brokers.get(kind, 0)
        if count < needed:
            reasons.append(f"{kind} of a broker happened {count} times, {needed} are needed")
    return reasons
