"""What ``brokers`` and ``leases`` show, from what the cluster manager says."""

from __future__ import annotations

from typing import Any

import pytest

from nextgen.cli.brokers import commands as broker_commands
from nextgen.cli.brokers.capacity_state import described, status_of
from protos.nextgen.v1.cluster_service_pb2 import BrokerAccount, ShardLease
from protos.nextgen.v1.events_pb2 import BrokerEndpoints, BrokerRecorded, LoadReport, TopicLoad

NOW_MS = 1_700_000_000_000
BROKER = BrokerRecorded(
    broker_id="broker-1",
    session_id="s-1",
    epoch=3,
    is_live=True,
    endpoints=BrokerEndpoints(pulsar_url="pulsar://b:6650", grpc="b:1", http="b:2"),
    capacity_units=80,
    zone="west",
    rack="r7",
)
ACCOUNT = BrokerAccount(
    broker_id="broker-1",
    session_id="s-1",
    leases=[
        ShardLease(shard_id=1, units=20, units_used=7),
        ShardLease(shard_id=2, units=10, units_used=1),
    ],
)
LOAD = LoadReport(
    topics=8,
    cpu_fraction=0.25,
    cores=1,
    memory_bytes=100,
    memory_limit_bytes=1_000,
    messages_in_per_second=12.5,
    busiest=[TopicLoad(name="persistent://acme/orders/paid", bytes_in_per_second=99.0)],
)


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, "live"),
        ({"draining": True}, "draining"),
        ({"quarantined_until_ms": NOW_MS + 1}, "quarantined"),
        ({"quarantined_until_ms": NOW_MS}, "live"),
        ({"is_live": False, "draining": True}, "ended"),
    ],
)
def test_a_brokers_status_says_what_it_is_good_for(changed: dict[str, Any], status: str) -> None:
    broker = BrokerRecorded()
    broker.CopyFrom(BROKER)
    for name, value in changed.items():
        setattr(broker, name, value)

    assert status_of(broker, NOW_MS) == status


def test_a_broker_is_described_with_what_shards_have_of_it_and_what_it_carries() -> None:
    found = described(BROKER, ACCOUNT, LOAD)

    assert (found["leased_units"], found["used_units"], found["capacity_units"]) == (30, 8, 80)
    assert (found["zone"], found["rack"]) == ("west", "r7")
    assert found["load"]["busiest_permille"] == 250
    assert found["load"]["messages_in_per_second"] == 12.5
    assert found["load"]["busiest"][0]["name"] == "persistent://acme/orders/paid"


def test_what_an_earlier_session_had_is_not_the_brokers_any_more() -> None:
    earlier = BrokerAccount(broker_id="broker-1", session_id="s-0", leases=ACCOUNT.leases)

    found = described(BROKER, earlier, None)

    assert (found["leased_units"], found["used_units"], found["load"]) == (0, 0, None)


def test_brokers_are_shown_with_load_and_without(capsys: pytest.CaptureFixture[str]) -> None:
    known, unknown = described(BROKER, ACCOUNT, LOAD), described(BROKER, ACCOUNT, None)

    broker_commands._print_brokers([known, unknown])
    broker_commands._print_broker(known)
    broker_commands._print_broker(unknown)

    shown = capsys.readouterr().out
    assert "west/r7" in shown
    assert "25.0" in shown
    assert "not known yet" in shown
