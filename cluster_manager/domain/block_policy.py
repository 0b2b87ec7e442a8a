"""How many units of each broker a shard is offered. This is a policy: the ledger's rules hold for
any offer.

Blocks start at capacity / (2 x shards), so that the first blocks of all shards use half of the
broker. A quota below the capacity takes its place. A block grows when more than four fifths of it
are used, or while the shard requests more. It grows by at most half of the free units, so that no
shard can take all at once, and by at most a quarter of the block or the requested units, because
unused units come back late and the other shards lack them meanwhile. A shard that uses more than
its lease, because the lease expired while in use, gets the used units first. A drained or
quarantined broker, which gets no new units anyway, is leased up to a first block and the used
units.

When a broker has less capacity than is leased, shards are asked to keep less: first of the units
that they do not use, then of those that they use. The shards with most of them give first, down to
one level for all, so a shard that has given is not asked again because another one is late.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from cluster_manager.domain.broker_directory import Broker
from cluster_manager.domain.capacity_ledger import Account, Ledger
from nextgen.kernel.governance.capacity_blocks import first_block


def units_to_offer(
    ledger: Ledger,
    *,
    brokers: Sequence[Broker],
    shard_id: int,
    shards: int,
    used: Mapping[str, int],
    units_wanted: int,
    closed: Container[str] = (),
) -> dict[str, int]:
    """Return, by broker id, the total that the shard's lease should have.

    Args:
        brokers: Brokers with a live session and a grant.
        used: Units in use by broker id; only for sessions that are live.
        units_wanted: Units that the shard needs beyond its leases; 0 for a plain renewal.
        closed: Ids of brokers that get no new units.

    A broker is not in the result if the shard has no lease of it and it has no free unit.
    """
    offers: dict[str, int] = {}
    left: dict[str, int] = {}
    for broker in brokers:
        account = ledger.live_account(broker.broker_id, broker.session_id)
        if account is None:
            continue
        lease = account.leases.get(shard_id)
        units, free = (lease.units if lease else 0), ledger.free_units(broker.broker_id)
        uses = used.get(broker.broker_id, 0)
        is_open = broker.broker_id not in closed
        growth = min(free, max(0, uses - units))
        first = first_block(ledger.leasable_units(broker.broker_id), shards)
        if units < first:
            growth = max(growth, min(first - units, free))
        elif is_open and 5 * uses > 4 * units:
            growth = max(growth, min(_half(free), _quarter(units)))
        offers[broker.broker_id] = units + growth
        if is_open:
            left[broker.broker_id] = free - growth
            units_wanted -= growth
    _grow_for_wish(offers, left, units_wanted)
    return {broker_id: units for broker_id, units in offers.items() if units > 0}


def units_to_keep(account: Account, used: Mapping[int, int]) -> dict[int, int]:
    """Return, by shard, the units of its lease that fit the capacity; {} if all leases fit.

    ``used`` are the units in use by shard, as reported last; the ledger's numbers count for others.
    The sum of the result is the capacity. What a shard uses may exceed its part.
    """
    if not account.is_shrinking:
        return {}
    uses = {
        shard_id: min(lease.units, used.get(shard_id, lease.units_used))
        for shard_id, lease in account.leases.items()
    }
    spare = account.capacity_units - sum(uses.values())
    if spare < 0:
        return _levelled(uses, account.capacity_units)
    unused = {shard_id: lease.units - uses[shard_id] for shard_id, lease in account.leases.items()}
    kept = _levelled(unused, spare)
    return {shard_id: units + kept[shard_id] for shard_id, units in uses.items()}


def _levelled(units: Mapping[int, int], total: int) -> dict[int, int]:
    """Return ``units`` cut at one level so that their sum is ``total``, which is at most theirs."""
    left, level = total, 0
    for place, most in enumerate(sorted(units.values())):
        # What the smaller ones leave of an equal part, the larger ones share.
        level = left // (len(units) - place)
        if most > level:
            break
        left -= most
    kept = {shard_id: min(most, level) for shard_id, most in units.items()}
    # By id, not by size, so that the same shards keep one more when some have given.
    cut = sorted(shard_id for shard_id, most in units.items() if most > level)
    for shard_id in cut[: total - sum(kept.values())]:
        kept[shard_id] += 1
    return kept


def _grow_for_wish(offers: dict[str, int], left: dict[str, int], units_wanted: int) -> None:
    """Grow blocks, that of the broker with most free units first, until the request is met."""
    for broker_id in sorted(left, key=lambda key: (-left[key], key)):
        if units_wanted <= 0:
            return
        growth = min(_half(left[broker_id]), max(units_wanted, _quarter(offers[broker_id])))
        offers[broker_id] += growth
        units_wanted -= growth


def _half(units: int) -> int:
    """Return half of ``units``, rounded up so that the last unit can be leased."""
    return (max(0, units) + 1) // 2


def _quarter(units: int) -> int:
    """Return a quarter of ``units``, rounded up so that the smallest block can grow."""
    return (units + 3) // 4
