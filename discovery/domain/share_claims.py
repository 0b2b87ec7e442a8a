"""Claims on capacity shares: which shares are being set, as all discovery processes see it.

A claim says that a tenant's policies may become version ``version`` with a share of ``percent``.
Claims are properties of one namespace, ``CLAIMS_NAMESPACE``, so one log decides about all of them:
a process replaces them at the version that it read. The write of the policies expects the version
before the claim's. So a claim is over once the tenant's policies have reached its version, and
until then the tenant counts with the larger of its stored share and its claim.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.placement import CAPACITY_RESERVE_PERCENT

CLAIMS_TENANT = "pulsar"
CLAIMS_NAMESPACE = "pulsar/system"
"""The namespace of the cluster's own data, as in Pulsar."""

_CLAIM = re.compile(r"capacity share (\d{1,3}) at (\d{1,19}) since (\d{1,19}) by ([0-9a-f]{16})")
_NAMES_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class Claim:
    """One tenant's claim."""

    percent: int
    version: int
    """Version of the tenant's policies once the claimed share is set."""

    since_ms: int
    """Unix time, by the clock of the process that made it."""

    nonce: str
    """16 hex digits that identify the claim."""

    def to_property(self) -> str:
        """Return the value of the property that keeps this claim."""
        return (
            f"capacity share {self.percent} at {self.version} since {self.since_ms} by {self.nonce}"
        )


@dataclass(frozen=True, slots=True)
class StoredShare:
    """A tenant's share by its policies, 0 without one, and the version of these policies."""

    percent: int
    version: int


def claims_of(properties: Mapping[str, str]) -> dict[str, Claim]:
    """Return the claims by tenant; other properties of the namespace are none."""
    found = {name: _CLAIM.fullmatch(value) for name, value in properties.items()}
    return {
        name: Claim(int(match[1]), int(match[2]), int(match[3]), match[4])
        for name, match in found.items()
        if match is not None
    }


def open_claims(claims: Mapping[str, Claim], stored: Mapping[str, StoredShare]) -> dict[str, Claim]:
    """Return the claims whose shares may still be set; a tenant that is gone has none."""
    return {
        tenant: claim
        for tenant, claim in claims.items()
        if tenant in stored and stored[tenant].version < claim.version
    }


def granted_shares(
    stored: Mapping[str, StoredShare], claims: Mapping[str, Claim]
) -> dict[str, int]:
    """Return the largest share that each tenant has or may get by its open claim."""
    granted = {tenant: share.percent for tenant, share in stored.items() if share.percent}
    for tenant, claim in claims.items():
        granted[tenant] = max(claim.percent, granted.get(tenant, 0))
    return granted


def check_shares(
    percent: int, others: Mapping[str, int], claimed: Iterable[str] = ()
) -> Rejected | None:
    """Return why a tenant may not have a share of ``percent``, None if it fits.

    ``others`` are the shares of all other tenants, those of ``claimed`` not set yet.
    """
    taken = sum(others.values())
    if not taken or not percent or taken + percent <= CAPACITY_RESERVE_PERCENT:
        return None
    largest = sorted(others, key=lambda name: (-others[name], name))[:_NAMES_SHOWN_MAX]
    pending = {*claimed}
    named = ", ".join(
        f"{name} {others[name]}{' being set' if name in pending else ''}" for name in largest
    )
    return Rejected(
        RejectionCode.LIMIT_EXCEEDED,
        f"capacity_share_percent is {percent}, and other tenants have {taken} ({named}"
        f"{', ...' if len(others) > len(largest) else ''}): all shares together may be "
        f"{CAPACITY_RESERVE_PERCENT}, which is what shards keep free for them",
    )
