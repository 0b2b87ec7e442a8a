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
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from cluster_manager.domain.broker_directory import Broker
from cluster_manager.domain.capacity_ledger import Ledger
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
