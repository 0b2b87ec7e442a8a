"""How many units of a tenant a shard may assign: its share of the tenant's quota.

A tenant's topics are spread over the shards by their names. Each shard has an even share of the
quota and asks nobody: together they never exceed it, and a tenant whose topics fall unevenly is
refused in one of them while others have room. Of a quota below one unit a shard some have none.
What is assigned stays, whatever the quota, and a unit that goes from one broker to another takes
nothing: only one that nobody had before is counted against it.

The count is kept by the fold. The quotas are what the cluster manager pushed last: a leader that
was cut off from it goes by the ones it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.capacity_blocks import share_of
from shards.ports import Quotas
from shards.state.shard_state import ShardState


class TenantQuotas:
    """The shares of one shard, for one term."""

    def __init__(
        self, state: ShardState, quotas: Quotas, shard_ids: Callable[[], Sequence[int]]
    ) -> None:
        """``shard_ids`` says which shards there are, or raises ``Unavailable``."""
        self._state = state
        self._quotas = quotas
        self._shard_ids = shard_ids

    def check(self, tenant: str, added: int) -> Rejected | None:
        """Return why not one unit more may be assigned behind ``added`` others, None if it may.

        ``added`` are those that are decided with it and not proposed yet.
        """
        units = self._quotas.of_tenant(tenant)
        if units is None:
            return None
        shard_id = self._state.shard_id
        try:
            share = share_of(units, shard_id, self._shard_ids())
        except Unavailable:
            return None  # Without a map nobody knows what a share is.
        used = self._state.tenant_units(tenant) + added
        if used < share:
            return None
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"tenant {tenant} may have {units} units assigned by its quota, {share} of them in "
            f"shard {shard_id}, which has {used}",
        )
