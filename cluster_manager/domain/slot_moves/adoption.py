"""What an adoption of slots changes besides the move: the owners in the map, and the leases.

Units that are assigned in the slots go along with them. The shard that gave the slots has stopped
counting them before it could report anything, so both leases change by the same number at once:

    lease of from_shard  -n      lease of to_shard  +n      sum of the session's leases: the same
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from cluster_manager.domain.capacity_ledger import Account, CapacityLeased, Lease, Ledger
from cluster_manager.domain.shard_map import ShardChanged, ShardMap
from cluster_manager.domain.slot_moves.moves import SlotMove
from nextgen.kernel.routing.slots import SlotRun


def owners_changed(shard_map: ShardMap, move: SlotMove) -> ShardChanged:
    """Return the next version of the map, in which the slots of the move are of its target."""
    runs = tuple(SlotRun(first, last, move.to_shard) for first, last in move.ranges)
    return ShardChanged(shard_map.version + 1, slots=runs)


def leases_transferred(
    ledger: Ledger, move: SlotMove, session_units: Mapping[str, int]
) -> Iterator[CapacityLeased]:
    """Yield both leases of each session of which units go along, in the order of broker ids.

    A shard cannot give more than it has: then all of its lease goes. Units of a session that has
    ended are nowhere in the ledger.
    """
    for broker_id, account in sorted(ledger.accounts.items()):
        units = session_units.get(account.session_id, 0)
        given = account.leases.get(move.from_shard, Lease(0, 0))
        units = min(units, given.units)
        if units <= 0:
            continue
        taken = account.leases.get(move.to_shard, Lease(0, 0))
        used = min(given.units_used, units)
        yield _leased(
            broker_id,
            account,
            move.from_shard,
            replace(given, units=given.units - units, units_used=given.units_used - used),
        )
        yield _leased(
            broker_id,
            account,
            move.to_shard,
            replace(
                taken,
                units=taken.units + units,
                # They are in use, whatever was reported of them.
                units_used=taken.units_used + units,
                expires_at_ms=max(taken.expires_at_ms, given.expires_at_ms),
            ),
        )


def _leased(broker_id: str, account: Account, shard_id: int, lease: Lease) -> CapacityLeased:
    return CapacityLeased(
        broker_id,
        account.session_id,
        shard_id,
        lease.units,
        lease.expires_at_ms,
        lease.version + 1,
        lease.units_used,
        lease.term,
    )
