"""Brokers, their load and their capacity, by the cluster manager's leader."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from nextgen.cli.calls.manager_leader import ask_manager_leader
from nextgen.client.wire.broker_load import report_permille
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.broker_kind import shown_kind
from protos.nextgen.v1.cluster_service_pb2 import (
    BrokerAccount,
    ClusterUpdate,
    GetCapacityRequest,
    GetCapacityResponse,
    GetClusterStateRequest,
)
from protos.nextgen.v1.events_pb2 import BrokerRecorded, LoadReport

ATTEMPT_TIMEOUT_MS = 2_000
"""Time-out of one read at one cluster manager, which a majority confirms."""


async def gather_brokers(
    discovery_endpoints: Sequence[str], broker_id: str | None = None
) -> list[dict[str, Any]]:
    """Return one document for each broker that was ever seen, by id, or for the one named.

    Raises:
        Refused: There is no such broker.
        MetadataError: No cluster manager could be reached.
    """
    state, capacity = await _ask_leader(discovery_endpoints)
    loads = {load.session_id: load.load for load in state.loads}
    accounts = {account.broker_id: account for account in capacity.accounts}
    found = [
        described(broker, accounts.get(broker.broker_id), loads.get(broker.session_id))
        for broker in sorted(state.brokers, key=lambda each: each.broker_id)
        if broker_id in (None, broker.broker_id)
    ]
    if broker_id is not None and not found:
        raise Refused(RejectionCode.NOT_FOUND, f"no broker {broker_id} was ever seen")
    return found


async def gather_leases(discovery_endpoints: Sequence[str]) -> GetCapacityResponse:
    """Return the capacity ledger, linearizable.

    Raises:
        MetadataError: No cluster manager could be reached.
    """
    _, capacity = await _ask_leader(discovery_endpoints)
    return capacity


def described(
    broker: BrokerRecorded, account: BrokerAccount | None, load: LoadReport | None
) -> dict[str, Any]:
    """Return a broker as a JSON object. Load is None while unknown."""
    is_current = account is not None and account.session_id == broker.session_id
    leases = list(account.leases) if account is not None and is_current else []
    return {
        "broker_id": broker.broker_id,
        "session_id": broker.session_id,
        "epoch": broker.epoch,
        "status": status_of(broker, time.time_ns() // 1_000_000),
        "draining": broker.draining,
        "drain_units_per_second": broker.drain_units_per_second,
        "quarantined_until_ms": broker.quarantined_until_ms,
        "kind": shown_kind(broker.kind),
        "zone": broker.zone,
        "rack": broker.rack,
        "pulsar_url": broker.endpoints.pulsar_url,
        "grpc": broker.endpoints.grpc,
        "http": broker.endpoints.http,
        "capacity_units": broker.capacity_units,
        "announced_units": broker.announced_units,
        "leased_units": sum(lease.units for lease in leases),
        "used_units": sum(lease.units_used for lease in leases),
        "load": None if load is None else _load(load),
    }


def status_of(broker: BrokerRecorded, now_ms: int) -> str:
    """Return the status of a broker: live, draining, quarantined or ended."""
    if not broker.is_live:
        return "ended"
    if broker.draining:
        return "draining"
    return "quarantined" if broker.quarantined_until_ms > now_ms else "live"


def _load(load: LoadReport) -> dict[str, Any]:
    return {
        "units": load.topics,
        "open_topics": load.open_topics,
        "connections": load.connections,
        "producers": load.producers,
        "consumers": load.consumers,
        "busiest_permille": report_permille(load),
        "cpu_fraction": load.cpu_fraction,
        "cores": load.cores,
        "memory_bytes": load.memory_bytes,
        "memory_limit_bytes": load.memory_limit_bytes,
        **_rates(load),
        "measured_at_ms": load.measured_at_ms,
        "busiest": [{"name": each.name, **_rates(each)} for each in load.busiest],
    }


def _rates(measured: Any) -> dict[str, float]:
    return {
        "messages_in_per_second": measured.messages_in_per_second,
        "messages_out_per_second": measured.messages_out_per_second,
        "bytes_in_per_second": measured.bytes_in_per_second,
        "bytes_out_per_second": measured.bytes_out_per_second,
    }


async def _ask_leader(
    discovery_endpoints: Sequence[str],
) -> tuple[ClusterUpdate, GetCapacityResponse]:
    async def ask(stub: Any) -> tuple[ClusterUpdate, GetCapacityResponse]:
        timeout = ATTEMPT_TIMEOUT_MS / 1_000
        state: ClusterUpdate = await stub.GetClusterState(GetClusterStateRequest(), timeout=timeout)
        capacity: GetCapacityResponse = await stub.GetCapacity(
            GetCapacityRequest(), timeout=timeout
        )
        return state, capacity

    return await ask_manager_leader(discovery_endpoints, ask)
