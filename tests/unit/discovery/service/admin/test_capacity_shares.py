"""Shares of tenants that are set through discovery: together they fit the reserve of shards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from discovery.domain.share_claims import CLAIMS_NAMESPACE, CLAIMS_TENANT, Claim, claims_of
from discovery.service.admin.capacity_shares import CapacityShares
from discovery.service.admin.policies import PoliciesService
from discovery.service.counters import DiscoveryCounters
from nextgen.kernel.errors import DeadlineExceeded, MetadataError, Overloaded, Refused, Unavailable
from nextgen.kernel.limits.placement import (
    CAPACITY_RESERVE_PERCENT,
    SHARE_CLAIM_MS_MAX,
    SHARE_CLAIMS_MAX,
)
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import Item, Namespace, Tenant
from protos.nextgen.v1.policies_pb2 import Policies
from tests.support.simulated.virtual_time import run_virtual

TIMEOUT_MS = 1_000
NOW_MS = 1_700_000_000_000


class Inventory:
    """All shards: tenants with their shares, ``page_size`` to a page, and the claims' namespace.

    A tenant without a share has None. Each call takes one turn of the loop, ``page_ms`` for a page.
    """

    def __init__(self, shares: dict[str, int | None], page_size: int = 2) -> None:
        self.tenants = {
            name: Tenant(
                name=name,
                policies=Policies(capacity_share_percent=share),
                policies_version=0 if share is None else 1,
            )
            for name, share in shares.items()
        }
        self.claims: Namespace | None = None
        self.writes: list[shard_pb.Command] = []
        self.page_size = page_size
        self.page_ms = 0
        self.pages = 0
        self.error: Exception | None = None
        self.before_page: Callable[[], None] = lambda: None
        self.before_write: Callable[[], None] = lambda: None

    @property
    def shares(self) -> dict[str, int]:
        """The shares that are set."""
        stored = {name: each.policies.capacity_share_percent for name, each in self.tenants.items()}
        return {name: percent for name, percent in stored.items() if percent}

    def claim(self, tenant: str, percent: int, *, since_ms: int, number: int = 0) -> None:
        """Store a claim on the next version, of a process that has died since."""
        version = self.tenants[tenant].policies_version + 1
        claim = Claim(percent, version, since_ms, f"{number:016x}")
        if self.claims is None:
            self.claims = Namespace(name=CLAIMS_NAMESPACE, version=1)
        self.claims.properties[tenant] = claim.to_property()

    def fail_next_write(self, error: Exception) -> None:
        """Answer the next write of policies with ``error``; it is not carried out."""

        def fail() -> None:
            self.before_write = lambda: None
            raise error

        self.before_write = fail

    async def list_tenants(
        self, request: pb.ListObjectsRequest, timeout_ms: int
    ) -> pb.ListObjectsResponse:
        await self._answer(timeout_ms, self.page_ms)
        self.pages += 1
        self.before_page()
        names = sorted(name for name in self.tenants if name > request.page_token)
        page = names[: self.page_size]
        items = [Item(name=name, tenant=self.tenants[name]) for name in page]
        token = page[-1] if len(names) > len(page) else ""
        return pb.ListObjectsResponse(items=items, next_page_token=token)

    async def get_tenant(
        self, request: pb.GetObjectRequest, timeout_ms: int
    ) -> pb.GetObjectResponse:
        await self._answer(timeout_ms)
        found = self.tenants.get(request.name)
        return pb.GetObjectResponse(item=Item(name=request.name, tenant=found))

    async def get_namespace(
        self, request: pb.GetObjectRequest, timeout_ms: int
    ) -> pb.GetObjectResponse:
        await self._answer(timeout_ms)
        return pb.GetObjectResponse(item=Item(name=request.name, namespace=self.claims))

    async def create_tenant(self, request: pb.CreateTenantRequest, timeout_ms: int) -> None:
        await self._answer(timeout_ms)
        if request.name in self.tenants:
            raise Refused("ALREADY_EXISTS", "it exists")
        self.tenants[request.name] = Tenant(name=request.name)

    async def create_namespace(self, request: pb.CreateNamespaceRequest, timeout_ms: int) -> None:
        await self._answer(timeout_ms)
        if self.claims is not None:
            raise Refused("ALREADY_EXISTS", "it exists")
        self.claims = Namespace(name=request.name, version=1)

    async def set_namespace_properties(
        self, request: pb.SetPropertiesRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        await self._answer(timeout_ms)
        assert self.claims is not None
        if request.expected_version not in (0, self.claims.version):
            raise Refused("VERSION_MISMATCH", "others were set")
        self.claims.properties.clear()
        self.claims.properties.update(request.properties)
        self.claims.version += 1
        return pb.WriteResponse(version=self.claims.version)

    async def execute(
        self, _key: str, command: shard_pb.Command, _write: Any, timeout_ms: int
    ) -> pb.WriteResponse:
        await self._answer(timeout_ms)
        self.before_write()
        body = command.set_policies
        if body.name in self.tenants:
            stored = self.tenants[body.name]
            is_conditional = body.expects_none or body.expected_version
            if is_conditional and body.expected_version != stored.policies_version:
                raise Refused("VERSION_MISMATCH", "others were set")
            stored.policies.CopyFrom(body.policies)
            stored.policies_version += 1
        self.writes.append(command)
        return pb.WriteResponse(version=1)

    async def _answer(self, timeout_ms: int, took_ms: int = 0) -> None:
        assert 0 < timeout_ms <= TIMEOUT_MS
        if self.error is not None:
            raise self.error
        await asyncio.sleep(min(took_ms, timeout_ms) / 1_000)
        if took_ms > timeout_ms:
            raise DeadlineExceeded("no page in time")


def service_of(inventory: Inventory, now_ms: int = NOW_MS) -> PoliciesService:
    """Return the service of one more discovery process."""
    made: Any = inventory
    no_shards: Any = None
    shares = CapacityShares(made, made, lambda: now_ms)
    return PoliciesService(no_shards, made, DiscoveryCounters(), shares)


async def set_share(
    service: PoliciesService, tenant: str, percent: int, **fields: Any
) -> pb.WriteResponse:
    policies = Policies(capacity_share_percent=percent)
    return await service.set_policies(
        pb.SetPoliciesRequest(name=tenant, policies=policies, **fields), TIMEOUT_MS
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
    assert inventory.pages == 0, "what does not grow needs no look at the others"


@pytest.mark.parametrize("processes", [1, 2])
async def test_of_two_shares_set_at_once_only_what_fits_is_accepted(processes: int) -> None:
    inventory = Inventory({"a": None, "b": None})
    services = [service_of(inventory) for _ in range(processes)]

    outcomes = await asyncio.gather(
        set_share(services[0], "a", CAPACITY_RESERVE_PERCENT),
        set_share(services[-1], "b", CAPACITY_RESERVE_PERCENT),
        return_exceptions=True,
    )

    # Both would fit alone, and every step of the one is between two steps of the other.
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Refused", "WriteResponse"]
    assert sum(inventory.shares.values()) == CAPACITY_RESERVE_PERCENT


async def test_shares_that_fit_together_are_all_accepted_from_several_processes() -> None:
    inventory = Inventory(dict.fromkeys("abcd"))

    await asyncio.gather(
        *(set_share(service_of(inventory), name, CAPACITY_RESERVE_PERCENT // 4) for name in "abcd")
    )

    assert inventory.shares == dict.fromkeys("abcd", CAPACITY_RESERVE_PERCENT // 4)


async def test_a_claim_counts_until_its_share_is_set_and_not_any_more() -> None:
    inventory = Inventory({"a": None, "b": None})
    inventory.claim("a", 6, since_ms=NOW_MS)
    service = service_of(inventory)

    with pytest.raises(Refused, match=r"have 6 \(a 6 being set\)"):
        await set_share(service, "b", 5)
    inventory.tenants["a"].policies_version += 1
    await set_share(service, "b", 5)

    assert inventory.claims is not None
    assert {*claims_of(inventory.claims.properties)} == {"b"}


async def test_of_two_settings_of_one_tenants_share_the_larger_counts_until_one_is_set() -> None:
    # Given: one process has claimed 6 for a tenant, another 5, and both wait for an answer.
    inventory = Inventory({"a": None, "b": 4})
    inventory.claim("a", 6, since_ms=NOW_MS)
    inventory.fail_next_write(DeadlineExceeded("no answer"))
    with pytest.raises(DeadlineExceeded):
        await set_share(service_of(inventory), "a", 5)

    with pytest.raises(Refused, match="a 6 being set"):
        await set_share(service_of(inventory), "b", 5)
    await set_share(service_of(inventory), "a", 5)

    # Then: once one of them was set the other cannot be, and only what was set counts.
    await set_share(service_of(inventory), "b", 5)


async def test_share_claim_ms_max_a_claim_holds_its_share_and_then_it_is_ended() -> None:
    inventory = Inventory({"a": None, "b": None})
    inventory.claim("a", 6, since_ms=NOW_MS - SHARE_CLAIM_MS_MAX)

    with pytest.raises(Refused, match="a 6 being set"):
        await set_share(service_of(inventory), "b", 5)
    await set_share(service_of(inventory, NOW_MS + 1), "b", 5)

    # Then: what was claimed cannot be set any more, however late it comes.
    with pytest.raises(Refused) as refused:
        await inventory.execute(
            "",
            shard_pb.Command(
                set_policies=shard_pb.SetPolicies(
                    name="a", policies=Policies(capacity_share_percent=6), expects_none=True
                )
            ),
            None,
            TIMEOUT_MS,
        )
    assert refused.value.code == "VERSION_MISMATCH"


async def test_share_claims_max_are_made_and_with_one_more_the_next_has_to_wait() -> None:
    inventory = Inventory(dict.fromkeys([f"t{number}" for number in range(SHARE_CLAIMS_MAX)]))
    inventory.tenants["new"] = Tenant(name="new")
    service = service_of(inventory)
    for number in range(SHARE_CLAIMS_MAX):
        inventory.claim(f"t{number}", 0, since_ms=NOW_MS, number=number)

    with pytest.raises(Overloaded):
        await set_share(service, "new", 1)
    inventory.tenants["t0"].policies_version += 1
    await set_share(service, "new", 1)

    assert inventory.shares == {"new": 1}


@pytest.mark.parametrize(
    "error", [Unavailable("no leader"), Refused("LIMIT_EXCEEDED", "policies too long")]
)
async def test_a_share_that_was_certainly_not_set_holds_nothing(error: MetadataError) -> None:
    inventory = Inventory({"a": None, "b": None})
    service = service_of(inventory)
    inventory.fail_next_write(error)
    with pytest.raises(type(error)):
        await set_share(service, "a", CAPACITY_RESERVE_PERCENT)

    await set_share(service_of(inventory), "b", CAPACITY_RESERVE_PERCENT)


async def test_a_share_that_may_have_been_set_holds_its_part() -> None:
    inventory = Inventory({"a": None, "b": None})
    inventory.fail_next_write(DeadlineExceeded("no answer"))
    with pytest.raises(DeadlineExceeded):
        await set_share(service_of(inventory), "a", CAPACITY_RESERVE_PERCENT)

    with pytest.raises(Refused, match="a 10 being set"):
        await set_share(service_of(inventory), "b", 1)


async def test_a_change_of_the_same_policies_in_between_is_a_mismatch() -> None:
    inventory = Inventory({"a": None})

    def change() -> None:
        inventory.tenants["a"].policies_version += 1

    inventory.before_write = change
    with pytest.raises(Refused) as refused:
        await set_share(service_of(inventory), "a", 1)

    assert refused.value.code == "VERSION_MISMATCH"
    assert inventory.shares == {}


async def test_a_share_that_was_set_while_the_others_were_read_is_counted() -> None:
    inventory = Inventory({"a": None})

    def set_meanwhile() -> None:
        inventory.before_page = lambda: None
        inventory.tenants["a"].policies.capacity_share_percent = 5
        inventory.tenants["a"].policies_version = 1

    inventory.before_page = set_meanwhile
    await set_share(service_of(inventory), "a", 4)

    assert inventory.shares == {"a": 4}


async def test_the_callers_version_is_what_is_expected() -> None:
    inventory = Inventory({"a": 1})
    service = service_of(inventory)

    def advance() -> None:
        inventory.tenants["a"].policies_version += 1

    # A version that is not reached yet is refused at once: it may be reached until the write.
    inventory.before_write = advance
    for fields in ({"expected_version": 2}, {"expects_none": True}):
        with pytest.raises(Refused) as refused:
            await set_share(service, "a", 3, **fields)
        assert refused.value.code == "VERSION_MISMATCH"
    inventory.before_write = lambda: None
    await set_share(service, "a", 3, expected_version=inventory.tenants["a"].policies_version)

    assert inventory.shares == {"a": 3}


async def test_a_tenant_that_does_not_exist_gets_no_share() -> None:
    with pytest.raises(Refused) as refused:
        await set_share(service_of(Inventory({})), "a", 1)

    assert refused.value.code == "NOT_FOUND"


async def test_claims_leave_other_properties_of_their_namespace_alone() -> None:
    inventory = Inventory({"a": None, CLAIMS_TENANT: None})
    inventory.claims = Namespace(name=CLAIMS_NAMESPACE, version=3, properties={"a": "capacity"})
    inventory.claims.properties["theirs"] = "kept"

    await set_share(service_of(inventory), "a", 1)

    assert inventory.claims.properties["theirs"] == "kept"
    assert claims_of(inventory.claims.properties)["a"].percent == 1


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


def test_all_tenants_are_read_within_one_deadline_and_the_next_request_continues() -> None:
    # Given: ten pages, of which four can be read in the time of one request.
    inventory = Inventory(dict.fromkeys([f"t{number:02}" for number in range(19)]))
    inventory.page_ms = TIMEOUT_MS // 4

    async def run() -> list[float]:
        service, took = service_of(inventory), []
        for _ in range(3):
            began_at = asyncio.get_running_loop().time()
            with suppress(Unavailable, DeadlineExceeded):
                await set_share(service, "t00", 1)
            took.append(asyncio.get_running_loop().time() - began_at)
        return took

    took = run_virtual(run)

    # Then: none took longer than it had, none read a page twice, and the third was done.
    assert max(took) <= TIMEOUT_MS / 1_000
    assert inventory.pages == 10
    assert inventory.shares == {"t00": 1}


async def test_what_was_read_is_used_until_another_process_claims() -> None:
    inventory = Inventory(dict.fromkeys(["a", "b", "c"]))
    service = service_of(inventory)
    await set_share(service, "a", 1)
    read_once = inventory.pages

    await set_share(service, "b", 1)
    assert inventory.pages == read_once
    await set_share(service_of(inventory), "c", 1)
    await set_share(service, "b", 2)

    assert inventory.pages == 3 * read_once
