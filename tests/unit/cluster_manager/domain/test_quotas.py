"""Quotas: the next version of what fits the brokers is taken, everything else refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.domain.broker_directory import Broker, BrokerRecorded
from cluster_manager.domain.capacity_ledger import CapacityGranted, LeaseCapacity
from cluster_manager.domain.capacity_ledger import decide as decide_ledger
from cluster_manager.domain.cluster import (
    INITIAL,
    ClusterState,
    decide_set_quotas,
    fold_events,
)
from cluster_manager.domain.quotas import Quotas, QuotasSet, SetQuotas
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import NAME_PART_BYTES_MAX
from nextgen.kernel.limits.placement import (
    QUOTA_NAMES_BYTES_MAX,
    QUOTA_SOURCE_BYTES_MAX,
    QUOTA_TENANTS_MAX,
)

BROKERS = (
    BrokerRecorded(Broker("b-1", "s-1", 1, True, capacity_units=100)),
    BrokerRecorded(Broker("b-2", "s-2", 1, True, capacity_units=50)),
    BrokerRecorded(Broker("b-3", "s-3", 1, False, capacity_units=70)),
)
HELD = Quotas(1, {"b-1": 40}, {"acme": 90}, "digest")


def command(quotas: Quotas) -> SetQuotas:
    return SetQuotas(quotas, len(quotas.brokers) + len(quotas.tenants))


def state(*events: object) -> ClusterState:
    return fold_events(INITIAL, [*BROKERS, *events])  # type: ignore[list-item]


def decided(quotas: Quotas, *events: object) -> object:
    return decide_set_quotas(state(*events), command(quotas))


def refusal(quotas: Quotas, *events: object) -> tuple[RejectionCode, str]:
    decision = decided(quotas, *events)
    assert isinstance(decision, Rejected), decision
    return decision.code, decision.message


def test_the_first_quotas_are_of_version_one() -> None:
    assert decided(HELD) == Accepted((QuotasSet(HELD),))
    assert state(QuotasSet(HELD)).quotas == HELD


def test_the_same_quotas_twice_are_one_event() -> None:
    assert decided(HELD, QuotasSet(HELD)) == Accepted(())


@pytest.mark.parametrize("version", [0, 1, 3])
def test_quotas_that_are_not_of_the_next_version_are_refused(version: int) -> None:
    code, why = refusal(Quotas(version), QuotasSet(HELD))

    assert code is RejectionCode.VERSION_MISMATCH
    assert f"the next are 2: these are {version}" in why


def test_quotas_of_no_version_are_refused_where_none_were_ever_set() -> None:
    assert refusal(Quotas())[0] is RejectionCode.VERSION_MISMATCH


def test_quotas_of_nobody_take_the_earlier_ones_away() -> None:
    none = Quotas(2)
    assert decided(none, QuotasSet(HELD)) == Accepted((QuotasSet(none),))
    after = state(QuotasSet(HELD), QuotasSet(none))
    assert (after.quotas, after.ledger.quotas) == (none, {})


def test_a_broker_that_was_never_seen_is_refused_and_one_that_ended_is_not() -> None:
    assert refusal(Quotas(1, {"b-9": 1}))[0] is RejectionCode.NOT_FOUND
    assert isinstance(decided(Quotas(1, {"b-3": 70})), Accepted)


def test_a_quota_may_be_the_capacity_and_not_one_more() -> None:
    assert isinstance(decided(Quotas(1, {"b-1": 100})), Accepted)
    assert refusal(Quotas(1, {"b-1": 101}))[0] is RejectionCode.LIMIT_EXCEEDED


def test_tenants_may_have_together_what_brokers_may_be_leased_out_and_not_one_more() -> None:
    # b-1 by its quota, b-2 by its capacity; b-3 is gone and has no quota.
    assert isinstance(decided(Quotas(1, {"b-1": 40}, {"a": 60, "b": 30})), Accepted)
    code, why = refusal(Quotas(1, {"b-1": 40}, {"a": 60, "b": 31}))
    assert code is RejectionCode.LIMIT_EXCEEDED
    assert "91 units together" in why
    assert why.endswith("leased out 90")


def test_a_name_that_comes_twice_is_refused() -> None:
    decision = decide_set_quotas(state(), SetQuotas(Quotas(1, {"b-1": 40}), 2))
    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.NOT_ALLOWED


def test_a_tenant_that_can_have_no_such_name_is_refused() -> None:
    assert refusal(Quotas(1, {}, {"a/b": 1}))[0] is RejectionCode.INVALID_NAME


def test_as_many_tenants_as_allowed_and_not_one_more() -> None:
    tenants = {f"t{number}": 0 for number in range(QUOTA_TENANTS_MAX)}
    assert isinstance(decided(Quotas(1, {}, tenants)), Accepted)
    assert refusal(Quotas(1, {}, {**tenants, "more": 0}))[0] is RejectionCode.LIMIT_EXCEEDED


def test_names_have_a_bound_together() -> None:
    tenants = {f"{n:0{NAME_PART_BYTES_MAX}}": 0 for n in range(QUOTA_TENANTS_MAX)}
    rest = QUOTA_NAMES_BYTES_MAX - NAME_PART_BYTES_MAX * QUOTA_TENANTS_MAX
    fits, is_too_long = "b" * rest, "b" * (rest + 1)
    known = [BrokerRecorded(Broker(each, "s", 1, True)) for each in (fits, is_too_long)]
    assert isinstance(decided(Quotas(1, {fits: 0}, tenants), *known), Accepted)
    assert refusal(Quotas(1, {is_too_long: 0}, tenants), *known)[0] is RejectionCode.LIMIT_EXCEEDED


def test_the_digest_of_the_source_has_a_bound() -> None:
    assert isinstance(decided(Quotas(1, source="d" * QUOTA_SOURCE_BYTES_MAX)), Accepted)
    beyond = Quotas(1, source="d" * (QUOTA_SOURCE_BYTES_MAX + 1))
    assert refusal(beyond)[0] is RejectionCode.LIMIT_EXCEEDED


def test_no_lease_grows_beyond_the_quota_and_what_is_leased_stays() -> None:
    ledger = state(CapacityGranted("b-1", "s-1", 100), QuotasSet(HELD)).ledger
    assert ledger.free_units("b-1") == 40
    assert ledger.leasable_units("b-1") == 40

    leased = decide_ledger(ledger, LeaseCapacity("b-1", "s-1", 1, 40, 99))
    assert isinstance(leased, Accepted)
    refused = decide_ledger(ledger, LeaseCapacity("b-1", "s-1", 1, 41, 99))
    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.NO_CAPACITY

    before = state(CapacityGranted("b-1", "s-1", 100), *_leased(60), QuotasSet(HELD)).ledger
    assert before.free_units("b-1") == 0
    renewed = decide_ledger(before, LeaseCapacity("b-1", "s-1", 1, 60, 199))
    assert isinstance(renewed, Accepted), "a lease that is there is renewed as it is"
    (event,) = renewed.events
    assert event.units == 60  # type: ignore[union-attr]
    more = decide_ledger(before, LeaseCapacity("b-1", "s-1", 2, 1, 99))
    assert isinstance(more, Rejected)


def test_a_quota_outlives_the_session_of_its_broker() -> None:
    again = BrokerRecorded(Broker("b-1", "s-9", 2, True, capacity_units=100))
    ledger = state(QuotasSet(HELD), again, CapacityGranted("b-1", "s-9", 100)).ledger
    assert ledger.free_units("b-1") == 40


def _leased(units: int) -> tuple[object, ...]:
    ledger = state(CapacityGranted("b-1", "s-1", 100)).ledger
    decision = decide_ledger(ledger, LeaseCapacity("b-1", "s-1", 1, units, 99))
    assert isinstance(decision, Accepted)
    return decision.events


STEPS = st.one_of(
    st.tuples(st.just("lease"), st.integers(1, 3), st.integers(0, 120)),
    st.tuples(st.just("quota"), st.just(0), st.one_of(st.none(), st.integers(0, 100))),
    st.tuples(st.just("session"), st.just(0), st.just(0)),
)


@given(st.lists(STEPS, max_size=30))
def test_leases_grow_within_quota_and_grant_whatever_comes_first(
    steps: list[tuple[str, int, int | None]],
) -> None:
    now, epoch, version = state(CapacityGranted("b-1", "s-1", 100)), 1, 0
    for step, shard_id, units in steps:
        before = now.ledger.accounts["b-1"]
        if step == "lease":
            wanted = LeaseCapacity("b-1", before.session_id, shard_id, units or 0, 99)
            decision = decide_ledger(now.ledger, wanted)
            now = fold_events(now, decision.events if isinstance(decision, Accepted) else ())
        elif step == "quota":
            version += 1
            quotas = Quotas(version, {} if units is None else {"b-1": units})
            now = fold_events(now, [QuotasSet(quotas)])
            assert now.ledger.accounts["b-1"] == before, "nothing is taken away"
        else:
            epoch += 1
            again = Broker("b-1", f"s-{epoch}", epoch, True, capacity_units=100)
            granted = CapacityGranted("b-1", f"s-{epoch}", 100)
            now = fold_events(now, [BrokerRecorded(again), granted])
        leased = now.ledger.accounts["b-1"].leased_units
        bound = now.quotas.brokers.get("b-1", 100)
        assert leased <= 100
        assert leased <= max(before.leased_units, bound)
        assert now.ledger.free_units("b-1") == max(0, bound - leased)
