"""Spreading leaders: which leadership, if any, should move next.

Each shard's first replica should lead it; first replicas are spread evenly, so leaders are too.
The shards of a first replica that is away are spread over the nodes that are left. A replica that
is to be removed should lead nothing; one that is joining is no replica yet.
One transfer at a time, and only of a leadership that was stable for a while: whatever made
leaders move must not be made worse by moving more of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from cluster_manager.domain.shard_map import Placement

STABLE_MS = 2_000
"""A leadership younger than this is left alone: the preferred node may just have restarted and
would still be catching up, and the leader waits ``SESSION_RETURN_MS`` for brokers to come to it."""

TRANSFER_MS_MAX = 3_000
"""A transfer that has not shown an effect by then is given up; another shard gets its turn."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leader of a shard, and since when this manager knows it (its monotonic clock)."""

    node_id: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """Leadership of the shard should go from its present leader to ``target``."""

    shard_id: int
    leader: str
    target: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """When a transfer of a shard was last requested, and from which leader."""

    leader: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Step:
    """What to do: a transfer to ask for, and when to look again if nothing changes before.

    ``look_again_at_ms`` is None when only a change can make something to do.
    """

    transfer: Transfer | None
    look_again_at_ms: int | None


def next_step(
    placements: Sequence[Placement],
    leaders: Mapping[int, Leadership],
    connected: Mapping[str, int] | AbstractSet[str],
    attempts: Mapping[int, Attempt],
    now_ms: int,
) -> Step:
    """Return at most one transfer.

    Args:
        connected: Ids of the connected nodes; both leader and target must be among them.
        attempts: The last attempt per shard. One that is younger than ``TRANSFER_MS_MAX`` and
            has not moved the leader yet is under way: nothing else starts until then.
    """
    misplaced = _misplaced(placements, leaders, connected)
    for transfer in misplaced:
        attempt = attempts.get(transfer.shard_id)
        if attempt and attempt.leader == transfer.leader:
            over_at_ms = attempt.at_ms + TRANSFER_MS_MAX
            if now_ms < over_at_ms:
                return Step(None, over_at_ms)

    ripe_at_ms = {
        transfer.shard_id: leaders[transfer.shard_id].since_ms + STABLE_MS for transfer in misplaced
    }
    ripe = [transfer for transfer in misplaced if ripe_at_ms[transfer.shard_id] <= now_ms]
    if not ripe:
        return Step(None, min(ripe_at_ms.values(), default=None))
    # The one whose last attempt is longest ago: one that keeps failing does not block the others.
    chosen = min(ripe, key=lambda transfer: _last_tried(attempts, transfer))
    return Step(chosen, now_ms + TRANSFER_MS_MAX)


def _misplaced(
    placements: Sequence[Placement],
    leaders: Mapping[int, Leadership],
    connected: Mapping[str, int] | AbstractSet[str],
) -> list[Transfer]:
    transfers = []
    for shard_id, wanted in _wanted_leaders(placements, leaders, connected).items():
        leadership = leaders.get(shard_id)
        if leadership is None or leadership.node_id == wanted:
            continue
        if leadership.node_id in connected:
            transfers.append(Transfer(shard_id, leadership.node_id, wanted))
    return transfers


def _wanted_leaders(
    placements: Sequence[Placement],
    leaders: Mapping[int, Leadership],
    connected: Mapping[str, int] | AbstractSet[str],
) -> dict[int, str]:
    """Return the node that should lead each shard with a connected replica."""
    wanted: dict[int, str] = {}
    led: Counter[str] = Counter()
    homeless = []
    for placement in placements:
        staying = placement.staying
        if staying and staying[0] in connected:
            wanted[placement.shard_id] = staying[0]
            led[staying[0]] += 1
        else:
            homeless.append(placement)
    # While a first replica is away, the one with the least to lead takes its shard; among equals
    # the present leader keeps it, so that nothing moves without a gain.
    for placement in homeless:
        leadership = leaders.get(placement.shard_id)
        present = leadership.node_id if leadership is not None else None
        candidates = [replica for replica in placement.staying if replica in connected]
        if candidates:
            chosen = min(candidates, key=lambda replica: (led[replica], replica != present))
            wanted[placement.shard_id] = chosen
            led[chosen] += 1
    return wanted


def _last_tried(attempts: Mapping[int, Attempt], transfer: Transfer) -> tuple[int, int]:
    attempt = attempts.get(transfer.shard_id)
    return (attempt.at_ms if attempt else -1, transfer.shard_id)
