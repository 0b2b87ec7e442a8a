"""Shares of tenants that are set through discovery: together they fit the reserve of shards."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from discovery.service.admin.policies import PoliciesService
from discovery.service.counters import DiscoveryCounters
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.limits.placement import CAPACITY_RESERVE_PERCENT
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import Item, Tenant
from protos.nextgen.v1.policies_pb2 import Policies

TIMEOUT_MS = 1_000


class Inventory:
    """All tenants with their shares, ``page_size`` to a page; a write takes one turn of the loop.

    A tenant without a share has None.
    """

    def __init__(self, shares: dict[str, int | None], page_size: int = 2) -> None:
        self.shares = shares
        self.writes: list[shard_pb.Command] = []
        self.page_size = page_size
        self.pages = 0
        self.error: Exception | None = None

    async def list_tenants(
        self, request: pb.ListObjectsRequest, timeout_ms: int
    ) -> pb.ListObjectsResponse:
        assert timeout_ms == TIMEOUT_MS
        if self.error is not None:
            raise self.error
        self.pages += 1
        await asyncio.sleep(0)
        names = sorted(name for name in self.shares if name > request.page_token)
        page = names[: self.page_size]
        items = [
            Item(name=name, tenant=Tenant(policies=Policies(capacity_share_percent=share)))
            for name in page
            for share in [self.shares[name]]
        ]
        token = page[-1] if len(names) > len(page) else ""
        return pb.ListObjectsResponse(items=items, next_page_token=token)

    async def execute(
        self, _key: str, command: shard_pb.Command, _write: Any, timeout_ms: int
    ) -> pb.WriteResponse:
        assert timeout_ms == TIMEOUT_MS
        await asyncio.sleep(0)
        self.writes.append(command)
        body = command.set_policies
        self.shares[body.name] = body.policies.capacity_share_percent
        return pb.WriteResponse(version=1)


def service_of(inventory: Inventory) -> PoliciesService:
    made: Any = inventory
    no_shards: Any = None
    return PoliciesService(no_shards, made, DiscoveryCounters())


async def set_share(service: PoliciesService, tenant: str, percent: int) -> pb.WriteResponse:
    policies = Policies(capacity_share_percent=percent)
    return await service.set_policies(
        pb.SetPoliciesRequest(name=tenant, policies=policies), TIMEOUT_MS
    )


async def test_capacity_reserve_percent_of_shares_is_accepted_and_one_more_refused() -> None:
    inventory = Inventory({"a": 1, "b": None, "c": 2, "d": None, "e": 1, "f": 1, "new": None})
    service = service_of(inventory)
    left = CAPACITY_RESERVE_PERCENT - 5

    with pytest.raises(Refused) as refused:
        await set_share(service, "new", left + 1)
    await set_share(service, "new", left)

    assert refused.value.code == "LIMIT_EXCEEDED"
    assert str(refused.value) == (
        f"capacity_share_percent is {left + 1}, and other tenants have 5 (c 2, a 1, e 1, ...): "
        f"all shares together may be {CAPACITY_RESERVE_PERCENT}, which is what shards keep free "
        "for them"
    )
    assert [write.set_policies.name for write in inventory.writes] == ["new"]
    assert inventory.shares["new"] == left


async def test_the_only_share_may_have_any_size_and_then_no_other_fits() -> None:
    inventory = Inventory({"a": None, "b": None})
    service = service_of(inventory)

    await set_share(service, "a", 100)

    with pytest.raises(Refused, match=r"other tenants have 100 \(a 100\)"):
        await set_share(service, "b", 1)


async def test_a_share_that_is_not_larger_than_before_is_accepted_though_all_do_not_fit() -> None:
    inventory = Inventory({"a": 60, "b": 60})
    service = service_of(inventory)

    for percent in (60, 59, 0):
        await set_share(service, "b", percent)

    assert len(inventory.writes) == 3


async def test_of_two_shares_set_at_once_only_what_fits_is_accepted() -> None:
    inventory = Inventory({"a": None, "b": None})
    service = service_of(inventory)

    outcomes = await asyncio.gather(
        set_share(service, "a", CAPACITY_RESERVE_PERCENT),
        set_share(service, "b", CAPACITY_RESERVE_PERCENT),
        return_exceptions=True,
    )

    assert [type(outcome) for outcome in outcomes] == [pb.WriteResponse, Refused]


async def test_policies_without_a_share_cost_no_listing() -> None:
    inventory = Inventory({"a": 60, "b": 60})
    service = service_of(inventory)

    for name in ("a", "a/n", "a/n/t"):
        policies = Policies(message_ttl_ms=1)
        await service.set_policies(pb.SetPoliciesRequest(name=name, policies=policies), TIMEOUT_MS)
    await service.set_policies(pb.SetPoliciesRequest(name="a"), TIMEOUT_MS)

    assert inventory.pages == 0
    assert len(inventory.writes) == 4


async def test_a_share_is_not_set_while_the_others_cannot_be_read() -> None:
    inventory = Inventory({"a": None})
    inventory.error = Unavailable("a shard has no leader")
    service = service_of(inventory)

    with pytest.raises(Unavailable):
        await set_share(service, "a", 1)

    inventory.error = None
    await set_share(service, "a", 1)
    assert len(inventory.writes) == 1
