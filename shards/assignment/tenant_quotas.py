"""How many units of a tenant a shard may assign: its share of the tenant's quota.

A tenant's topics are spread over the shards by their names. Each shard has an even share of the
quota and decides alone, so the shards together never exceed the quota. A tenant whose topics fall
unevenly is refused in one shard while others have room, and with a quota below one unit a shard
some shards have a share of none.
A lower quota takes nothing away from a tenant, and a move of a unit needs no quota: only a unit
without an owner is checked.

The fold keeps the count of assigned units. The cluster manager pushes the quotas; a leader that is
cut off from it uses the last ones it received.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.capacity_blocks import share_of
from shards.ports import Quotas
from shards.state.state_reads import StateReads


class TenantQuotas:
    """The shares of one shard, for one term."""

    def __init__(
        self,
        shard_id: int,
        reads: StateReads,
        quotas: Quotas,
        shard_ids: Callable[[], Sequence[int]],
    ) -> None:
        """``shard_ids`` returns the shards of the cluster, or raises ``Unavailable``."""
        self._shard_id = shard_id
        self._reads = reads
        self._quotas = quotas
        self._shard_ids = shard_ids

    def check(self, tenant: str, added: int) -> Rejected | None:
        """Return why one unit more may not be assigned, None if it may.

        ``added`` counts units of the tenant that are decided with it and not proposed yet.
        """
        units = self._quotas.of_tenant(tenant)
        if units is None:
            return None
        try:
            share = share_of(units, self._shard_id, self._shard_ids())
        except Unavailable:
            return None  # Without a shard map the share is unknown.
        used = self._reads.tenant_units(tenant) + added
        if used < share:
            return None
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"tenant {tenant} may have {units} units assigned by its quota, {share} of them in "
            f"shard {self._shard_id}, which has {used}",
        )
