"""Leases in force, and when to renew them."""

from __future__ import annotations

from protos.nextgen.v1.cluster_service_pb2 import CapacityLease
from shards.lease_table import Lease, LeaseTable


def lease(session_id: str, units: int = 10, ttl_ms: int = 90_000) -> CapacityLease:
    return CapacityLease(broker_id="b", session_id=session_id, units=units, ttl_ms=ttl_ms)


def test_a_lease_is_in_force_from_its_request_on_for_its_time() -> None:
    table = LeaseTable()

    table.replace([lease("s", 10, 1_000)], asked_at=100.0)

    assert table.lease("s", 100.999) == Lease("b", "s", 10, 101.0)
    assert table.lease("s", 101.0) is None
    assert table.lease("other", 100.0) is None


def test_an_answer_replaces_all_that_was_known() -> None:
    table = LeaseTable()
    table.replace([lease("a"), lease("b")], asked_at=0.0)

    table.replace([lease("b", 20)], asked_at=1.0)

    assert table.session_ids() == ("b",)
    assert table.units_leased == 20


def test_renewal_is_due_at_a_third_of_the_shortest_time_left() -> None:
    table = LeaseTable()
    assert table.renew_at(10.0) is None

    table.replace([lease("a", ttl_ms=90_000), lease("b", ttl_ms=60_000)], asked_at=10.0)

    assert table.renew_at(10.0) == 30.0


def test_a_dropped_lease_is_gone() -> None:
    table = LeaseTable()
    table.replace([lease("a")], asked_at=0.0)

    table.drop("a")
    table.drop("a")

    assert table.lease("a", 0.0) is None
