"""Quotas as programs read them, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextgen.cli.brokers.quota_commands import read_file
from nextgen.cli.calls.quota_state import described, to_proto
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.quota_file import QuotaFile, to_bytes
from protos.nextgen.v1.cluster_service_pb2 import BrokerAccount, GetCapacityResponse, ShardLease

QUOTAS = QuotaFile(3, {"b-2": 5, "b-1": 40}, {"zoo": 2, "acme": 30}, "ab")


def test_what_travels_is_in_the_order_of_names() -> None:
    sent = to_proto(QUOTAS)

    assert [(each.broker_id, each.units) for each in sent.brokers] == [("b-1", 40), ("b-2", 5)]
    assert [(each.tenant, each.units) for each in sent.tenants] == [("acme", 30), ("zoo", 2)]
    assert (sent.version, sent.source) == (3, "ab")


def test_quotas_are_shown_beside_what_is_leased_of_them() -> None:
    leases = [
        ShardLease(shard_id=1, units=20, units_used=7),
        ShardLease(shard_id=2, units=10, units_used=1),
    ]
    account = BrokerAccount(broker_id="b-1", is_live=True, capacity_units=100, leases=leases)

    shown = described(to_proto(QUOTAS), GetCapacityResponse(accounts=[account]))

    assert shown["version"] == 3
    assert shown["brokers"] == [
        {
            "broker_id": "b-1",
            "quota_units": 40,
            "capacity_units": 100,
            "is_live": True,
            "leased_units": 30,
            "used_units": 8,
        },
        {
            "broker_id": "b-2",
            "quota_units": 5,
            "capacity_units": 0,
            "is_live": False,
            "leased_units": 0,
            "used_units": 0,
        },
    ]
    assert shown["tenants"][0] == {"tenant": "acme", "quota_units": 30}


def test_a_file_is_read_or_named_in_the_refusal(tmp_path: Path) -> None:
    path = tmp_path / "quotas.json"
    with pytest.raises(InvalidRequest, match=r"quotas\.json cannot be read"):
        read_file(path)
    path.write_bytes(b"{}")
    with pytest.raises(InvalidRequest, match=r"quotas\.json: this is no file of quotas"):
        read_file(path)
    path.write_bytes(to_bytes(QUOTAS))
    assert read_file(path) == QUOTAS
