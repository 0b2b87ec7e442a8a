"""The quotas of a cluster: sets them from a file, and shows them with the leased units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nextgen.cli.calls.manager_leader import ask_manager_leader
from nextgen.kernel.governance.quota_file import QuotaFile
from protos.nextgen.v1.cluster_service_pb2 import (
    BrokerAccount,
    GetCapacityRequest,
    GetCapacityResponse,
    GetQuotasRequest,
    GetQuotasResponse,
    SetQuotasRequest,
    SetQuotasResponse,
)
from protos.nextgen.v1.events_pb2 import BrokerQuota, QuotasSet, TenantQuota

ATTEMPT_TIMEOUT_MS = 4_000
"""Time-out of one call; the cluster manager itself gives up a little earlier."""


async def apply_quotas(discovery_endpoints: Sequence[str], quotas: QuotaFile) -> dict[str, Any]:
    """Set the quotas of the cluster; return the present ones as a JSON object.

    Raises:
        Refused: Other quotas were set meanwhile, or these do not fit the brokers.
        MetadataError: No cluster manager could be reached.
    """
    request = SetQuotasRequest(quotas=to_proto(quotas))

    async def ask(stub: Any) -> SetQuotasResponse:
        response: SetQuotasResponse = await stub.SetQuotas(
            request, timeout=ATTEMPT_TIMEOUT_MS / 1_000
        )
        return response

    response = await ask_manager_leader(discovery_endpoints, ask)
    return _quotas(response.quotas)


async def gather_quotas(discovery_endpoints: Sequence[str]) -> dict[str, Any]:
    """Return the present quotas, with leased and used units of each broker that has one.

    ``version`` is 0 if none were ever set.
    """

    async def ask(stub: Any) -> tuple[GetQuotasResponse, GetCapacityResponse]:
        timeout = ATTEMPT_TIMEOUT_MS / 1_000
        quotas: GetQuotasResponse = await stub.GetQuotas(GetQuotasRequest(), timeout=timeout)
        capacity: GetCapacityResponse = await stub.GetCapacity(
            GetCapacityRequest(), timeout=timeout
        )
        return quotas, capacity

    held, capacity = await ask_manager_leader(discovery_endpoints, ask)
    return described(held.quotas, capacity)


async def read_quotas(discovery_endpoints: Sequence[str]) -> QuotaFile | None:
    """Return the quotas that hold, None if none were ever set."""

    async def ask(stub: Any) -> GetQuotasResponse:
        response: GetQuotasResponse = await stub.GetQuotas(
            GetQuotasRequest(), timeout=ATTEMPT_TIMEOUT_MS / 1_000
        )
        return response

    held = (await ask_manager_leader(discovery_endpoints, ask)).quotas
    if not held.version:
        return None
    return QuotaFile(
        held.version,
        {each.broker_id: each.units for each in held.brokers},
        {each.tenant: each.units for each in held.tenants},
        held.source,
    )


def described(quotas: QuotasSet, capacity: GetCapacityResponse) -> dict[str, Any]:
    """Return quotas as a JSON object, with the leased units."""
    accounts = {account.broker_id: account for account in capacity.accounts}
    shown = _quotas(quotas)
    for broker in shown["brokers"]:
        # The cluster manager knows every broker that has a quota; its account may be to come.
        account = accounts.get(broker["broker_id"], BrokerAccount())
        broker |= {
            "capacity_units": account.capacity_units,
            "is_live": account.is_live,
            "leased_units": sum(lease.units for lease in account.leases),
            "used_units": sum(lease.units_used for lease in account.leases),
        }
    return shown


def to_proto(quotas: QuotaFile) -> QuotasSet:
    """Return the content of a file as a message, in the order of names."""
    return QuotasSet(
        version=quotas.version,
        brokers=[
            BrokerQuota(broker_id=broker_id, units=units)
            for broker_id, units in sorted(quotas.brokers.items())
        ],
        tenants=[
            TenantQuota(tenant=tenant, units=units)
            for tenant, units in sorted(quotas.tenants.items())
        ],
        source=quotas.source,
    )


def _quotas(quotas: QuotasSet) -> dict[str, Any]:
    return {
        "version": quotas.version,
        "source": quotas.source,
        "brokers": [
            {"broker_id": each.broker_id, "quota_units": each.units} for each in quotas.brokers
        ],
        "tenants": [{"tenant": each.tenant, "quota_units": each.units} for each in quotas.tenants],
    }
