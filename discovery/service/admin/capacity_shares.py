"""Checks that the capacity shares of all tenants fit the reserve of shards.

A share is a promise that other tenants cannot break, made from the reserve of each lease. Shares
that exceed the reserve in sum could not all be kept, so the one that exceeds it is refused when it
is set. A share that is the only one may have any size: no other tenant uses the reserve.

    claims, at their version ──▶ shares of all tenants ──▶ sum fits ──▶ claim, at that version
                                                     ──▶ policies, at the version they were read

Several processes may set shares at the same moment, and tenants live in different shards. So each
first stores a claim in one place, see ``discovery.domain.share_claims``: of two that read the same
claims only one can replace them, and the other begins again and counts the first one's claim.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from discovery.domain.share_claims import (
    CLAIMS_NAMESPACE,
    CLAIMS_TENANT,
    Claim,
    StoredShare,
    check_shares,
    claims_of,
    granted_shares,
    open_claims,
)
from discovery.service.admin.deadline import Deadline
from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.listing import ListingService
from nextgen.kernel.errors import MetadataError, Overloaded, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX
from nextgen.kernel.limits.placement import SHARE_CLAIM_MS_MAX, SHARE_CLAIMS_MAX
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import KIND_TENANT, Namespace, Tenant

_ATTEMPTS_MAX = 5
"""Attempts at a claim. A further one is needed if another process changed the claims, or if a claim
was abandoned."""

_NONCE_BYTES = 8

_logger = structlog.get_logger(__name__)


@dataclass
class _Reading:
    """The claims, and the shares of all tenants as read after them."""

    namespace_id: str
    version: int
    """Version of the claims' namespace: while it is unchanged there are no other claims."""

    properties: dict[str, str]
    claims: dict[str, Claim]
    stored: dict[str, StoredShare] = field(default_factory=dict)
    """The stored shares of tenants with a share or a claim."""

    after: str = ""
    is_complete: bool = False
    tenants: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """Permission to set a share while the tenant's policies are at ``version``; 0: were never
    set."""

    tenant: str
    version: int
    claim: Claim | None = None
    """None: the share does not grow, which needs no claim."""


class CapacityShares:
    """Grants shares before they are set, by the stored shares and claims of all tenants.

    Shares that were read are kept until another claim is stored, so that the next request continues
    one that ran out of time. Owned by one event loop.
    """

    def __init__(
        self,
        inventory: InventoryService,
        listing: ListingService,
        unix_ms: Callable[[], int],
    ) -> None:
        self._inventory = inventory
        self._listing = listing
        self._unix_ms = unix_ms
        self._turn = asyncio.Lock()
        self._reading: _Reading | None = None

    async def grant(
        self, tenant: str, percent: int, deadline: Deadline, expected_version: int | None = None
    ) -> Grant:
        """Return the condition under which ``tenant`` may set a share of ``percent``, 1 or more.

        The policies MUST be set at the granted version only. If they certainly were not, the caller
        gives the grant back. A tenant may always keep its share or take a smaller one.

        With ``expected_version`` no other version is granted. If the policies are beyond it, it is
        granted without a claim: the command is refused, or gets its first outcome if it is a
        repetition.

        Raises:
            Refused: NOT_FOUND, there is no such tenant; LIMIT_EXCEEDED, the share does not fit;
                VERSION_MISMATCH, the policies have not reached ``expected_version``.
            Overloaded: Too many shares are being set.
            MetadataError: The shares or claims could not be read or replaced in time.
        """
        async with self._turn_within(deadline):
            for _ in range(_ATTEMPTS_MAX):
                found = await self._tenant(tenant, deadline)
                own = StoredShare(found.policies.capacity_share_percent, found.policies_version)
                if expected_version is not None and expected_version != own.version:
                    return _grant_of_another(tenant, own.version, expected_version)
                if percent <= own.percent:
                    return Grant(tenant, own.version)
                claim = await self._try_claim(tenant, percent, own, deadline)
                if claim is not None:
                    return Grant(tenant, own.version, claim)
        raise Overloaded(f"other shares were set each of {_ATTEMPTS_MAX} times")

    async def give_back(self, grant: Grant, deadline: Deadline) -> None:
        """Remove the claim of a grant that was not used. A failure only delays other tenants."""
        if grant.claim is None:
            return
        with contextlib.suppress(MetadataError):
            async with self._turn_within(deadline):
                reading = await self._current_reading(deadline)
                if reading.claims.get(grant.tenant) == grant.claim:
                    claims = {k: v for k, v in reading.claims.items() if k != grant.tenant}
                    await self._replace(reading, claims, deadline)

    # Claiming ---------------------------------------------------------------------------------

    async def _try_claim(
        self, tenant: str, percent: int, own: StoredShare, deadline: Deadline
    ) -> Claim | None:
        """Return the claim once it is stored, None to try again. ``own`` is the tenant's share."""
        kept = self._reading
        reading = await self._read(deadline)
        if reading.stored.get(tenant, own).version > own.version:
            return None
        reading.stored[tenant] = own
        claims = open_claims(reading.claims, reading.stored)
        claimed = claims.get(tenant)
        # Another process may be setting the same tenant's share: either may come first.
        wanted = percent if claimed is None else max(percent, claimed.percent)
        others = granted_shares(reading.stored, claims)
        others.pop(tenant, None)
        refusal = check_shares(wanted, others, claims)
        if refusal is not None or len({*claims, tenant}) > SHARE_CLAIMS_MAX:
            # The kept reading may be outdated, because shares shrink without a claim.
            if reading is kept or await self._end_abandoned(claims, deadline):
                self._reading = None
                return None
            if refusal is not None:
                raise Refused(refusal.code, refusal.message)
            raise Overloaded(f"the shares of {len(claims)} tenants are being set")
        claim = Claim(wanted, own.version + 1, self._unix_ms(), secrets.token_hex(_NONCE_BYTES))
        is_stored = await self._replace(reading, {**claims, tenant: claim}, deadline)
        return claim if is_stored else None

    async def _replace(
        self, reading: _Reading, claims: dict[str, Claim], deadline: Deadline
    ) -> bool:
        """Store ``claims`` unless others were stored since ``reading``; return whether they were
        stored."""
        properties = {k: v for k, v in reading.properties.items() if k not in reading.claims}
        properties |= {tenant: claim.to_property() for tenant, claim in claims.items()}
        request = pb.SetPropertiesRequest(
            name=CLAIMS_NAMESPACE, properties=properties, expected_version=reading.version
        )
        self._reading = None
        try:
            response = await self._inventory.set_namespace_properties(
                request, deadline.remaining_ms()
            )
        except Refused as refused:
            if refused.code == RejectionCode.VERSION_MISMATCH:
                return False
            raise
        reading.version, reading.properties, reading.claims = response.version, properties, claims
        self._reading = reading
        return True

    async def _end_abandoned(self, claims: dict[str, Claim], deadline: Deadline) -> bool:
        """Make old claims impossible to use; return whether there were any.

        The policies of their tenants are set again unchanged: the new version ends the claim.
        """
        oldest_ms = self._unix_ms() - SHARE_CLAIM_MS_MAX
        abandoned = [name for name, claim in claims.items() if claim.since_ms < oldest_ms]
        for name in abandoned:
            _logger.warning("abandoned claim of a capacity share ended", tenant=name)
            with contextlib.suppress(Refused):
                found = await self._tenant(name, deadline)
                body = shard_pb.SetPolicies(
                    kind=KIND_TENANT,
                    name=name,
                    policies=found.policies if found.HasField("policies") else None,
                    expected_version=found.policies_version,
                    expects_none=not found.policies_version,
                )
                await self._inventory.execute(
                    name,
                    shard_pb.Command(set_policies=body),
                    pb.SetPoliciesRequest(name=name),
                    deadline.remaining_ms(),
                )
        return bool(abandoned)

    # Reading ----------------------------------------------------------------------------------

    async def _read(self, deadline: Deadline) -> _Reading:
        """Return the claims and the shares of all tenants, continuing what was begun before."""
        reading = await self._current_reading(deadline)
        while not reading.is_complete:
            request = pb.ListObjectsRequest(page_size=PAGE_ITEMS_MAX, page_token=reading.after)
            remaining_ms = deadline.remaining_ms(f"after {reading.tenants} tenants were read")
            page = await self._listing.list_tenants(request, remaining_ms)
            for item in page.items:
                percent = item.tenant.policies.capacity_share_percent
                if percent or item.name in reading.claims:
                    reading.stored[item.name] = StoredShare(percent, item.tenant.policies_version)
            reading.tenants += len(page.items)
            reading.after = page.next_page_token
            reading.is_complete = not page.next_page_token
        return reading

    async def _current_reading(self, deadline: Deadline) -> _Reading:
        """Return the reading under the present claims; drop an older one."""
        found = await self._claims_namespace(deadline)
        known, present = self._reading, (found.namespace_id, found.version)
        if known is None or (known.namespace_id, known.version) != present:
            properties = dict(found.properties)
            known = self._reading = _Reading(*present, properties, claims_of(properties))
        return known

    async def _claims_namespace(self, deadline: Deadline) -> Namespace:
        request = pb.GetObjectRequest(name=CLAIMS_NAMESPACE)
        found = await self._inventory.get_namespace(request, deadline.remaining_ms())
        if not found.item.HasField("namespace"):
            await self._make_claims_namespace(deadline)
            found = await self._inventory.get_namespace(request, deadline.remaining_ms())
        return found.item.namespace

    async def _make_claims_namespace(self, deadline: Deadline) -> None:
        tenant = pb.CreateTenantRequest(name=CLAIMS_TENANT)
        await _unless_it_exists(self._inventory.create_tenant(tenant, deadline.remaining_ms()))
        namespace = pb.CreateNamespaceRequest(name=CLAIMS_NAMESPACE)
        await _unless_it_exists(
            self._inventory.create_namespace(namespace, deadline.remaining_ms())
        )

    async def _tenant(self, tenant: str, deadline: Deadline) -> Tenant:
        request = pb.GetObjectRequest(name=tenant)
        found = await self._inventory.get_tenant(request, deadline.remaining_ms())
        if not found.item.HasField("tenant"):
            raise Refused(RejectionCode.NOT_FOUND, f"tenant {tenant} does not exist")
        return found.item.tenant

    @contextlib.asynccontextmanager
    async def _turn_within(self, deadline: Deadline) -> AsyncIterator[None]:
        try:
            async with timeout(deadline.remaining_ms() / 1_000):
                await self._turn.acquire()
        except TimeoutError:
            raise Overloaded("shares of other tenants are being set") from None
        try:
            yield
        finally:
            self._turn.release()


def _grant_of_another(tenant: str, version: int, expected_version: int) -> Grant:
    if expected_version < version:
        return Grant(tenant, expected_version)
    raise Refused(
        RejectionCode.VERSION_MISMATCH,
        f"the policies of tenant {tenant} are at version {version}, "
        f"command expected {expected_version}",
    )


async def _unless_it_exists(creation: Awaitable[pb.WriteResponse]) -> None:
    try:
        await creation
    except Refused as refused:
        if refused.code != RejectionCode.ALREADY_EXISTS:
            raise
