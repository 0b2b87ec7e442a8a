"""Quotas: the most units of a broker that may be leased, and of a tenant that may be assigned.

Quotas are set all together. Each set has a version, one above the version before, and a request
that was made from an earlier version is refused. A broker or tenant that is not in the set has no
quota. Units beyond a quota stay leased or assigned, but no more are added.

The sum of the tenants' quotas may not exceed the units that brokers' quotas allow to lease, and a
broker's quota may not exceed its capacity. Both are checked when quotas are set. A broker whose
capacity shrinks later is still bounded by its capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cluster_manager.domain.broker_directory import BrokerDirectory
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import BROKERS_MAX, STORED_INTEGER_MAX
from nextgen.kernel.limits.placement import (
    QUOTA_NAMES_BYTES_MAX,
    QUOTA_SOURCE_BYTES_MAX,
    QUOTA_TENANTS_MAX,
    QUOTA_UNITS_MAX,
)
from nextgen.kernel.routing.names import InvalidName, parse_tenant


@dataclass(frozen=True, slots=True)
class Quotas:
    """Units by broker id and by tenant. The mappings are never changed in place."""

    version: int = 0
    """0: no quotas were ever set."""

    brokers: Mapping[str, int] = field(default_factory=dict)
    tenants: Mapping[str, int] = field(default_factory=dict)
    source: str = ""
    """Digest of the export that they were made from, for people."""


@dataclass(frozen=True, slots=True)
class SetQuotas:
    """Replace all quotas. ``named`` is the number of names before duplicates were removed."""

    quotas: Quotas
    named: int


@dataclass(frozen=True, slots=True)
class QuotasSet:
    """These quotas hold from this event on."""

    quotas: Quotas


INITIAL = Quotas()


def decide(
    state: Quotas, command: SetQuotas, directory: BrokerDirectory
) -> Accepted[QuotasSet] | Rejected:
    """Accept the next version of quotas if they fit the brokers' capacities.

    The present quotas are accepted again, without an event.
    """
    quotas = command.quotas
    if quotas == state and quotas.version:
        return Accepted(())
    refused = _refused_shape(command) or _refused_version(state, quotas.version)
    refused = refused or _refused_units(quotas, directory)
    return refused or Accepted((QuotasSet(quotas),))


def evolve(_: Quotas, event: QuotasSet) -> Quotas:
    """Return the quotas after ``event``."""
    return event.quotas


def _refused_shape(command: SetQuotas) -> Rejected | None:
    quotas = command.quotas
    if command.named != len(quotas.brokers) + len(quotas.tenants):
        return Rejected(RejectionCode.NOT_ALLOWED, "the quotas name a broker or a tenant twice")
    for what, count, most in (
        ("brokers", len(quotas.brokers), BROKERS_MAX),
        ("tenants", len(quotas.tenants), QUOTA_TENANTS_MAX),
        ("bytes of names", _bytes_of((*quotas.brokers, *quotas.tenants)), QUOTA_NAMES_BYTES_MAX),
        ("bytes of source", len(quotas.source.encode()), QUOTA_SOURCE_BYTES_MAX),
        ("units", max((*quotas.brokers.values(), *quotas.tenants.values(), 0)), QUOTA_UNITS_MAX),
    ):
        if count > most:
            return Rejected(
                RejectionCode.LIMIT_EXCEEDED, f"the quotas have {count} {what}, at most {most} may"
            )
    return _refused_tenant(quotas.tenants)


def _refused_tenant(tenants: Iterable[str]) -> Rejected | None:
    for tenant in tenants:
        try:
            parse_tenant(tenant)
        except InvalidName as error:
            return Rejected(RejectionCode.INVALID_NAME, str(error))
    return None


def _refused_version(state: Quotas, version: int) -> Rejected | None:
    if version == state.version + 1 and version <= STORED_INTEGER_MAX:
        return None
    return Rejected(
        RejectionCode.VERSION_MISMATCH,
        f"the present quotas are of version {state.version}, so the next are "
        f"{state.version + 1}: these are {version}",
    )


def _refused_units(quotas: Quotas, directory: BrokerDirectory) -> Rejected | None:
    for broker_id, units in sorted(quotas.brokers.items()):
        broker = directory.brokers.get(broker_id)
        if broker is None:
            return Rejected(RejectionCode.NOT_FOUND, f"no broker {broker_id} was ever seen")
        if units > broker.capacity_units:
            return Rejected(
                RejectionCode.LIMIT_EXCEEDED,
                f"a quota of {units} units is more than broker {broker_id} has, which is "
                f"{broker.capacity_units}",
            )
    available = sum(quotas.brokers.values()) + sum(
        broker.capacity_units
        for broker in directory.live()
        if broker.broker_id not in quotas.brokers
    )
    wanted = sum(quotas.tenants.values())
    if wanted <= available:
        return None
    return Rejected(
        RejectionCode.LIMIT_EXCEEDED,
        f"the tenants' quotas are {wanted} units together, the brokers may be leased out "
        f"{available}",
    )


def _bytes_of(names: Iterable[str]) -> int:
    return sum(len(name.encode()) for name in names)
