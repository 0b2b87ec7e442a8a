"""Spreading leaders: which leadership, if any, should move next.

Each shard's first replica should lead it; first replicas are spread evenly, so leaders are too. If
a node is away, the shards that it should lead are spread over the other nodes. A leaving replica
should lead nothing, and a joining one cannot lead yet. Only one transfer runs at a time, and only
of a leadership that was stable for a while, so that transfers do not add to an ongoing disturbance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from cluster_manager.domain.shard_map import Placement

STABLE_MS = 2_000
"""A younger leadership is not moved: the preferred node may have restarted and still be catching
up, and the leader waits ``SESSION_RETURN_MS`` for its brokers to reconnect."""

TRANSFER_MS_MAX = 3_000
"""A transfer without effect is given up after this time, and another shard gets its turn."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """A shard's leader, and when this manager learned of it (its monotonic clock)."""

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
    """The last requested transfer of a shard: its time, and the leader then."""

    leader: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Step:
    """The next action: a transfer to request, and when to decide again if nothing changes.

    ``look_again_at_ms`` is None if only a change can make another transfer useful.
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
        attempts: The last attempt per shard. One that is younger than ``TRANSFER_MS_MAX`` and has
            not moved the leader is still running, and no other transfer starts meanwhile.
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
    # Take the shard with the oldest attempt, so that one that keeps failing blocks no other.
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
    # While a first replica is away, the node that leads the fewest shards should lead its shard.
    # Among equals the present leader keeps it, so that nothing moves without a gain.
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
