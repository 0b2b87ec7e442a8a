"""Sizes of capacity leases on which shards and the cluster manager must agree."""

from __future__ import annotations

from collections.abc import Sequence

_FIRST_BLOCK_PARTS = 2


def first_block(capacity_units: int, shards: int) -> int:
    """Return the units of a broker in a shard's first lease, which it keeps when it returns others.

    The capacity over twice the number of shards: half of a broker is left for shards that need
    more.
    """
    return max(1, capacity_units // (_FIRST_BLOCK_PARTS * max(1, shards)))


def units_to_keep(*, units: int, needed: int, first: int) -> int:
    """Return how many of ``units`` a shard keeps that needed at most ``needed`` for a long time.

    Half as much again as it needed, so that it does not request more at once, and never less than
    its first block. A return of less than a quarter is not worth a commit: all are kept then.
    """
    keep = max(first, needed + (needed + 1) // 2)
    return keep if 4 * (units - keep) >= units > keep else units


def share_of(units: int, shard_id: int, shard_ids: Sequence[int]) -> int:
    """Return a shard's share of ``units`` that all shards have together.

    Shares are even; the remainder goes to the lowest ids, one unit each. A shard that is not among
    ``shard_ids`` has none.
    """
    if shard_id not in shard_ids:
        return 0
    each, left = divmod(units, len(shard_ids))
    return each + (sorted(shard_ids).index(shard_id) < left)
