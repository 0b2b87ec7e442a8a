"""Whether the capacity shares of all tenants fit into what shards keep for them.

A share is a promise that other tenants cannot break, made from the reserve of each lease. Shares
that add up to more than the reserve could not all be kept, so the one too many is refused when it
is set. A share that is the only one may have any size: no other tenant uses the reserve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from discovery.service.admin.inventory import InventoryService
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX
from nextgen.kernel.limits.placement import CAPACITY_RESERVE_PERCENT
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.policies_pb2 import Policies

_NAMES_SHOWN_MAX = 3


def check_shares(tenant: str, percent: int, others: Mapping[str, int]) -> Rejected | None:
    """Return why ``tenant`` may not have a share of ``percent``, None if it fits.

    ``others`` are the shares of all other tenants that have one of their own.
    """
    taken = sum(others.values())
    if not taken or not percent or taken + percent <= CAPACITY_RESERVE_PERCENT:
        return None
    largest = sorted(others, key=lambda name: (-others[name], name))[:_NAMES_SHOWN_MAX]
    named = ", ".join(f"{name} {others[name]}" for name in largest)
    return Rejected(
        RejectionCode.LIMIT_EXCEEDED,
        f"capacity_share_percent is {percent}, and other tenants have {taken} ({named}"
        f"{', ...' if len(others) > len(largest) else ''}): all shares together may be "
        f"{CAPACITY_RESERVE_PERCENT}, which is what shards keep free for them",
    )


class CapacityShares:
    """Checks shares before they are set, against what all shards have stored.

    The caller holds ``turn`` from the check until the share is set, so that two settings in one
    process cannot both take what is left. Two processes at the same moment can; from then on no
    share may grow until they fit again.
    """

    def __init__(self, inventory: InventoryService) -> None:
        self._inventory = inventory
        self.turn = asyncio.Lock()

    async def check(self, tenant: str, policies: Policies, timeout_ms: int) -> None:
        """Read the shares of all tenants and return if that of ``policies`` fits beside them.

        A tenant may always keep the share that it has or take a smaller one. So a command that is
        repeated because its answer was lost gets that answer, whatever was set meanwhile.

        Raises:
            Refused: LIMIT_EXCEEDED, it does not fit.
            MetadataError: The tenants could not be read.
        """
        percent = policies.capacity_share_percent
        if not percent:
            return
        shares = await self._shares(timeout_ms)
        if percent <= shares.pop(tenant, 0):
            return
        refusal = check_shares(tenant, percent, shares)
        if refusal is not None:
            raise Refused(refusal.code, refusal.message)

    async def _shares(self, timeout_ms: int) -> dict[str, int]:
        """Return the shares of all tenants whose policies give them one."""
        shares: dict[str, int] = {}
        request = pb.ListObjectsRequest(page_size=PAGE_ITEMS_MAX)
        while True:
            page = await self._inventory.list_tenants(request, timeout_ms)
            for item in page.items:
                if percent := item.tenant.policies.capacity_share_percent:
                    shares[item.name] = percent
            if not page.next_page_token:
                return shares
            request.page_token = page.next_page_token
