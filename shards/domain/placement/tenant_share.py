"""A tenant's share of the capacity that a shard leases, guaranteed against other tenants.

    leased to the shard  ├─────────── idle: any tenant ─────────────┼── reserve: tenants ──┤
    of each broker                                                    below their share

A tenant may use idle capacity beyond its share. The last ``CAPACITY_RESERVE_PERCENT`` of each lease
go only to tenants below their share in this shard. So tenants whose shares add up to no more than
the reserve always get their shares, however much the others use and however late they come. The
reserve makes it unnecessary to take units back from a tenant.

Each shard applies this to its own leases alone. Leases of a broker never exceed its capacity, so
neither do the reserves, and a tenant's shares in all shards add up to its part of the whole leased
capacity. Every operation here is arithmetic on counts.
"""

from __future__ import annotations

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.placement import (
    CAPACITY_RESERVE_PERCENT,
    CAPACITY_SHARE_PERCENT_DEFAULT,
)


def reserve_units(units_leased: int) -> int:
    """Return how many units of one lease are kept for tenants below their share, rounded down."""
    return units_leased * CAPACITY_RESERVE_PERCENT // 100


def share_units(units_leased: int, percent: int | None) -> int:
    """Return a tenant's share of all units leased to a shard, rounded up.

    ``percent`` is the tenant's policy; None: it has none, and the default applies.
    """
    part = CAPACITY_SHARE_PERCENT_DEFAULT if percent is None else percent
    return -(-units_leased * part // 100)


def check_share(
    tenant: str, *, units_assigned: int, units_leased: int, percent: int | None
) -> Rejected | None:
    """Return why ``tenant`` may not have a unit of the reserve, None if it is below its share.

    ``units_assigned`` are the tenant's units in this shard, ``units_leased`` those of the shard.
    """
    share = share_units(units_leased, percent)
    if units_assigned < share:
        return None
    source = "by default" if percent is None else "by its policy"
    part = CAPACITY_SHARE_PERCENT_DEFAULT if percent is None else percent
    return Rejected(
        RejectionCode.SHARE_EXCEEDED,
        f"tenant {tenant} has {units_assigned} units here, its share is {share} of "
        f"{units_leased} leased ({part} % {source}, capacity_share_percent); the last "
        f"{CAPACITY_RESERVE_PERCENT} % are kept for tenants below their share",
    )
