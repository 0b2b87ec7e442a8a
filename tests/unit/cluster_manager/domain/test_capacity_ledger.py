"""The capacity ledger: leased <= granted <= max(capacity, leased), whatever happens."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sql
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster_manager import wire
from cluster_manager.domain.broker_directory import Broker, BrokerRecorded
from cluster_manager.domain.capacity_ledger import (
    INITIAL,
    Account,
    CapacityGranted,
    CapacityLeased,
    CapacityLeaseReleased,
    Command,
    ExpireLease,
    FoldedEvent,
    Lease,
    LeaseCapacity,
    Ledger,
    RecordGrant,
    ReleaseLeases,
    ReturnUnits,
    decide,
    evolve,
)
from cluster_manager.domain.quotas import Quotas, QuotasSet
from cluster_manager.projections import tables
from cluster_manager.projections.fold import fold_event
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold

BEGAN = BrokerRecorded(Broker("broker-1", "s-1", 1, True, capacity_units=100))
ENDED = BrokerRecorded(Broker("broker-1", "s-1", 1, False, capacity_units=100))
GRANTED = CapacityGranted("broker-1", "s-1", 100)

broker_ids = st.sampled_from(["broker-1", "broker-2"])
session_ids = st.sampled_from(["s-1", "s-2"])
amounts = st.integers(0, 60)
shards = st.integers(1, 3)
terms = st.integers(0, 3)
repeatable: st.SearchStrategy[Command] = st.one_of(
    st.builds(RecordGrant, broker_ids, session_ids, amounts),
    st.builds(
        LeaseCapacity,
        broker_ids,
        session_ids,
        shards,
        amounts,
        st.integers(0, 9),
        terms,
        amounts,
    ),
    st.builds(ExpireLease, broker_ids, session_ids, shards, amounts),
    st.builds(ReleaseLeases, broker_ids, session_ids),
)
returns = st.builds(
    ReturnUnits, broker_ids, session_ids, shards, st.integers(-1, 60), st.integers(0, 4), terms
)
commands: st.SearchStrategy[Command] = st.one_of(repeatable, returns)
records = st.builds(
    lambda broker_id, session_id, is_live, units: BrokerRecorded(
        Broker(broker_id, session_id, 1, is_live, capacity_units=units)
    ),
    broker_ids,
    session_ids,
    st.booleans(),
    amounts,
)
"""The directory's events come from outside the ledger: they are folded, not decided here."""
steps = st.lists(st.one_of(commands, records), max_size=20)


def _given(*events: FoldedEvent) -> Ledger:
    return fold(evolve, INITIAL, events)


def _step(state: Ledger, step: Command | BrokerRecorded) -> tuple[Ledger, tuple[FoldedEvent, ...]]:
    if isinstance(step, BrokerRecorded):
        return evolve(state, step), (step,)
    decision = decide(state, step)
    events = decision.events if isinstance(decision, Accepted) else ()
    return fold(evolve, state, events), events


def _code(state: Ledger, command: Command) -> RejectionCode:
    decision = decide(state, command)
    assert isinstance(decision, Rejected)
    return decision.code


def test_a_grant_of_a_live_session_is_recorded() -> None:
    command = RecordGrant("broker-1", "s-1", 100)

    assert decide(_given(BEGAN), command) == Accepted((GRANTED,))


def test_a_grant_beyond_the_capacity_is_refused() -> None:
    assert _code(_given(BEGAN), RecordGrant("broker-1", "s-1", 101)) is RejectionCode.LIMIT_EXCEEDED


def test_a_smaller_grant_is_an_overtaken_answer_and_changes_nothing() -> None:
    assert decide(_given(BEGAN, GRANTED), RecordGrant("broker-1", "s-1", 40)) == Accepted(())


def test_a_lease_is_taken_out_of_the_grant() -> None:
    command = LeaseCapacity("broker-1", "s-1", 1, 100, 5_000)

    assert decide(_given(BEGAN, GRANTED), command) == Accepted(
        (CapacityLeased("broker-1", "s-1", 1, 100, 5_000, version=1),)
    )


def test_leases_of_all_shards_together_never_exceed_the_grant() -> None:
    state = _given(BEGAN, GRANTED, CapacityLeased("broker-1", "s-1", 1, 60, 5_000))

    assert isinstance(decide(state, LeaseCapacity("broker-1", "s-1", 2, 40, 5_000)), Accepted)
    command = LeaseCapacity("broker-1", "s-1", 2, 41, 5_000)
    assert _code(state, command) is RejectionCode.NO_CAPACITY


def test_time_alone_frees_nothing_because_the_shard_may_have_used_it() -> None:
    """The ledger has no clock: the caller that ends a lease must be sure that it expired."""
    state = _given(BEGAN, GRANTED, CapacityLeased("broker-1", "s-1", 1, 100, 1))

    command = LeaseCapacity("broker-1", "s-1", 2, 1, 9_999_999)
    assert _code(state, command) is RejectionCode.NO_CAPACITY


def test_asking_for_less_takes_nothing_away_and_ends_nothing_earlier() -> None:
    state = _given(BEGAN, GRANTED, CapacityLeased("broker-1", "s-1", 1, 60, 5_000))

    assert decide(state, LeaseCapacity("broker-1", "s-1", 1, 10, 4_000)) == Accepted(())
    assert decide(state, LeaseCapacity("broker-1", "s-1", 1, 10, 6_000)) == Accepted(
        (CapacityLeased("broker-1", "s-1", 1, 60, 6_000),)
    )


LEASED = CapacityLeased("broker-1", "s-1", 1, 60, 5_000, version=3, units_used=25, term=7)


def _returned(units: int, version: int = 3, term: int = 7, session_id: str = "s-1") -> ReturnUnits:
    return ReturnUnits("broker-1", session_id, 1, units, version, term)


def test_units_that_are_returned_are_free_for_others() -> None:
    state = _given(BEGAN, GRANTED, LEASED)

    decision = decide(state, _returned(30))

    shrunk = replace(LEASED, units=30, version=4)
    assert decision == Accepted((shrunk,))
    after = evolve(state, shrunk)
    assert after.free_units("broker-1") == 70
    assert isinstance(decide(after, LeaseCapacity("broker-1", "s-1", 2, 70, 5_000)), Accepted)


def test_all_units_may_be_returned_and_the_version_is_not_forgotten() -> None:
    after = _given(BEGAN, GRANTED, LEASED, replace(LEASED, units=0, version=4, units_used=0))

    again = decide(after, LeaseCapacity("broker-1", "s-1", 1, 10, 6_000, 7))

    assert again == Accepted((CapacityLeased("broker-1", "s-1", 1, 10, 6_000, 5, 0, 7),))


@pytest.mark.parametrize(
    ("events", "command", "code"),
    [
        pytest.param(
            (BEGAN, GRANTED, LEASED, replace(LEASED, units=30, version=4)),
            _returned(30),
            RejectionCode.VERSION_MISMATCH,
            id="twice",
        ),
        pytest.param(
            (BEGAN, GRANTED, LEASED), _returned(30, 4), RejectionCode.VERSION_MISMATCH, id="future"
        ),
        pytest.param(
            (BEGAN, GRANTED, LEASED), _returned(30, term=6), RejectionCode.STALE_EPOCH, id="deposed"
        ),
        pytest.param((BEGAN, GRANTED, LEASED), _returned(60), RejectionCode.NOT_ALLOWED, id="same"),
        pytest.param((BEGAN, GRANTED, LEASED), _returned(61), RejectionCode.NOT_ALLOWED, id="more"),
        pytest.param((BEGAN, GRANTED, LEASED), _returned(-1), RejectionCode.NOT_ALLOWED, id="less"),
        pytest.param((BEGAN, GRANTED), _returned(30), RejectionCode.NOT_FOUND, id="never leased"),
        pytest.param(
            (BEGAN, GRANTED, LEASED, ENDED), _returned(30), RejectionCode.SESSION_EXPIRED, id="over"
        ),
        pytest.param(
            (BEGAN, GRANTED, LEASED),
            _returned(30, session_id="s-9"),
            RejectionCode.SESSION_EXPIRED,
            id="another session",
        ),
    ],
)
def test_a_return_is_refused(
    events: tuple[FoldedEvent, ...], command: ReturnUnits, code: RejectionCode
) -> None:
    assert _code(_given(*events), command) is code


def test_a_leader_of_an_earlier_term_cannot_ask() -> None:
    state = _given(BEGAN, GRANTED, LEASED)

    assert _code(state, LeaseCapacity("broker-1", "s-1", 1, 60, 9_000, 6)) is (
        RejectionCode.STALE_EPOCH
    )
    assert decide(state, LeaseCapacity("broker-1", "s-1", 1, 60, 9_000, 8, 25)) == Accepted(
        (replace(LEASED, expires_at_ms=9_000, term=8),)
    )
    assert (state.term_of(1), state.term_of(2)) == (7, 0)


@pytest.mark.parametrize(("said", "left"), [(0, 25), (25, 25), (26, 26), (59, 59)])
def test_of_an_expired_lease_what_the_shard_used_stays_reserved(said: int, left: int) -> None:
    decision = decide(_given(BEGAN, GRANTED, LEASED), ExpireLease("broker-1", "s-1", 1, said))

    assert decision == Accepted((replace(LEASED, units=left, version=4),))


@pytest.mark.parametrize("said", [60, 61])
def test_a_lease_that_is_all_used_loses_nothing_when_it_expires(said: int) -> None:
    state = _given(BEGAN, GRANTED, LEASED)

    assert decide(state, ExpireLease("broker-1", "s-1", 1, said)) == Accepted(())


def test_a_lease_whose_use_nobody_recorded_expires_without_losing_a_unit() -> None:
    stored = wire.event_to_proto(CapacityLeased("broker-1", "s-1", 1, 60, 5_000))

    recorded = wire.event_from_proto(stored)

    assert isinstance(recorded, CapacityLeased)
    state = _given(BEGAN, GRANTED, recorded)
    assert decide(state, ExpireLease("broker-1", "s-1", 1)) == Accepted(())


def test_no_more_than_the_lease_counts_as_used() -> None:
    command = LeaseCapacity("broker-1", "s-1", 1, 40, 5_000, units_used=60)

    assert decide(_given(BEGAN, GRANTED), command) == Accepted(
        (CapacityLeased("broker-1", "s-1", 1, 40, 5_000, version=1, units_used=40),)
    )


def test_a_lease_beyond_a_later_quota_is_renewed_and_does_not_grow() -> None:
    state = _given(BEGAN, GRANTED, LEASED, QuotasSet(Quotas(1, {"broker-1": 30}, {})))

    renewed = decide(state, LeaseCapacity("broker-1", "s-1", 1, 60, 9_000, 7, 25))

    assert renewed == Accepted((replace(LEASED, expires_at_ms=9_000),))
    assert _code(state, LeaseCapacity("broker-1", "s-1", 1, 61, 9_000, 7, 25)) is (
        RejectionCode.NO_CAPACITY
    )


def test_what_is_about_an_earlier_session_changes_nothing_of_the_present_one() -> None:
    state = _given(BEGAN, GRANTED, LEASED)

    assert evolve(state, CapacityGranted("broker-1", "s-0", 10)) == state
    assert evolve(state, CapacityLeased("broker-1", "s-0", 1, 10, 5_000)) == state
    assert evolve(state, CapacityLeaseReleased("broker-1", "s-0", 1, "session_ended")) == state
    assert decide(state, ReleaseLeases("broker-1", "s-0")) == Accepted(())


def test_the_end_of_a_session_frees_its_leases() -> None:
    state = _given(
        BEGAN,
        GRANTED,
        CapacityLeased("broker-1", "s-1", 2, 30, 5_000),
        CapacityLeased("broker-1", "s-1", 1, 60, 5_000),
    )

    assert decide(state, ReleaseLeases("broker-1", "s-1")) == Accepted(
        (
            CapacityLeaseReleased("broker-1", "s-1", 1, "session_ended"),
            CapacityLeaseReleased("broker-1", "s-1", 2, "session_ended"),
        )
    )


@pytest.mark.parametrize(
    "command",
    [RecordGrant("broker-1", "s-1", 10), LeaseCapacity("broker-1", "s-1", 1, 10, 5_000)],
)
@pytest.mark.parametrize(
    "events",
    [(), (BEGAN, GRANTED, ENDED), (BrokerRecorded(Broker("broker-1", "s-2", 2, True)),)],
    ids=["unknown broker", "ended session", "another session"],
)
def test_a_session_that_is_not_live_gets_nothing(
    command: Command, events: tuple[FoldedEvent, ...]
) -> None:
    assert _code(_given(*events), command) is RejectionCode.SESSION_EXPIRED


def test_a_lease_of_nothing_is_refused() -> None:
    command = LeaseCapacity("broker-1", "s-1", 1, 0, 5_000)

    assert _code(_given(BEGAN, GRANTED), command) is RejectionCode.NOT_ALLOWED


def test_a_new_session_starts_with_an_empty_account() -> None:
    successor = BrokerRecorded(Broker("broker-1", "s-2", 2, True, capacity_units=50))

    state = _given(BEGAN, GRANTED, CapacityLeased("broker-1", "s-1", 1, 60, 5_000), successor)

    assert state == Ledger({"broker-1": Account("s-2", is_live=True, capacity_units=50)})


SHRUNK = BrokerRecorded(
    Broker("broker-1", "s-1", 1, True, capacity_units=10, revision=1, announced_units=100)
)


def test_the_grant_follows_a_capacity_that_shrinks() -> None:
    state = _given(BEGAN, GRANTED, SHRUNK)

    assert state.accounts["broker-1"] == Account("s-1", True, 10, 10)
    assert not state.accounts["broker-1"].is_shrinking


def test_a_grant_never_falls_below_what_is_leased_and_follows_each_lease_that_shrinks() -> None:
    other = CapacityLeased("broker-1", "s-1", 2, 30, 5_000, version=1)
    state = _given(BEGAN, GRANTED, LEASED, other, SHRUNK)
    assert (state.accounts["broker-1"].granted_units, state.free_units("broker-1")) == (90, 0)
    assert state.accounts["broker-1"].is_shrinking

    state = evolve(state, replace(LEASED, units=25, version=4))
    assert state.accounts["broker-1"].granted_units == 55
    state = evolve(state, replace(LEASED, units=5, version=5, units_used=5))
    assert state.accounts["broker-1"].granted_units == 35
    state = evolve(state, CapacityLeaseReleased("broker-1", "s-1", 2, "session_ended"))
    assert state.accounts["broker-1"].granted_units == 10
    assert state.free_units("broker-1") == 5


def test_while_the_leases_exceed_the_capacity_none_grows() -> None:
    state = _given(BEGAN, GRANTED, LEASED, SHRUNK)

    assert _code(state, LeaseCapacity("broker-1", "s-1", 2, 1, 5_000)) is RejectionCode.NO_CAPACITY
    renewed = decide(state, LeaseCapacity("broker-1", "s-1", 1, 60, 9_000, 7, 25))
    assert renewed == Accepted((replace(LEASED, expires_at_ms=9_000),))


def test_a_grant_of_the_former_capacity_is_refused_and_a_later_capacity_is_granted() -> None:
    state = _given(BEGAN, GRANTED, SHRUNK)

    assert _code(state, RecordGrant("broker-1", "s-1", 100)) is RejectionCode.LIMIT_EXCEEDED
    grown = evolve(state, BEGAN)
    assert grown.accounts["broker-1"].granted_units == 10
    assert decide(grown, RecordGrant("broker-1", "s-1", 100)) == Accepted((GRANTED,))


@given(history=steps)
def test_the_sums_hold_in_every_reachable_state(history: list[Command | BrokerRecorded]) -> None:
    state = INITIAL
    for step in history:
        state, _ = _step(state, step)
        for account in state.accounts.values():
            assert 0 <= account.leased_units <= account.granted_units
            assert account.granted_units <= max(account.capacity_units, account.leased_units)
            assert all(0 <= lease.units_used <= lease.units for lease in account.leases.values())


@given(history=steps)
@example(
    history=[
        BEGAN,
        RecordGrant("broker-1", "s-1", 100),
        LeaseCapacity("broker-1", "s-1", 1, 20, 5_000),
        ReleaseLeases("broker-1", "s-1"),
        LeaseCapacity("broker-1", "s-1", 1, 10, 5_000),
    ]
)
def test_a_version_is_never_used_for_two_sizes_of_a_lease(
    history: list[Command | BrokerRecorded],
) -> None:
    state, seen = INITIAL, dict[tuple[str, str, int, int], int]()
    for number, step in enumerate(history):
        if isinstance(step, BrokerRecorded):
            # A session that ended never returns: each gets an id of its own.
            step = replace(step, broker=replace(step.broker, session_id=f"s-{number}"))
        elif (account := state.accounts.get(step.broker_id)) is not None:
            step = replace(step, session_id=account.session_id)
        state, _ = _step(state, step)
        if isinstance(step, ReleaseLeases):
            # It is recorded together with the end of the session, and never without it.
            over = Broker(step.broker_id, step.session_id, 1, False)
            state, _ = _step(state, BrokerRecorded(over))
        for broker_id, account in state.accounts.items():
            for shard_id, lease in account.leases.items():
                key = (broker_id, account.session_id, shard_id, lease.version)
                assert seen.setdefault(key, lease.units) == lease.units


@given(history=steps, command=returns)
def test_a_return_that_was_accepted_is_refused_the_second_time(
    history: list[Command | BrokerRecorded], command: ReturnUnits
) -> None:
    state = INITIAL
    for step in history:
        state, _ = _step(state, step)

    if isinstance(decide(state, command), Accepted):
        after, _ = _step(state, command)
        assert _code(after, command) is RejectionCode.VERSION_MISMATCH


@given(history=steps, command=repeatable)
def test_retry(history: list[Command | BrokerRecorded], command: Command) -> None:
    state = INITIAL
    for step in history:
        state, _ = _step(state, step)

    if isinstance(decide(state, command), Accepted):
        after, _ = _step(state, command)
        assert decide(after, command) == Accepted(())


@given(history=steps, cut=st.integers(0, 30))
@settings(max_examples=40)
def test_replay_and_snapshot(history: list[Command | BrokerRecorded], cut: int) -> None:
    state, folded, engine = INITIAL, [], sql.create_engine("sqlite://")
    with engine.begin() as connection:
        tables.METADATA.create_all(connection)
        for step in history:
            state, events = _step(state, step)
            for event in events:
                folded.append(event)
                fold_event(connection, event)
        restored = tables.load_state(connection).ledger
    engine.dispose()

    assert restored == state
    assert fold(evolve, fold(evolve, INITIAL, folded[:cut]), folded[cut:]) == state


@given(
    history=steps,
    event=st.one_of(
        records,
        st.builds(CapacityGranted, broker_ids, session_ids, amounts),
        st.builds(
            CapacityLeased, broker_ids, session_ids, shards, amounts, st.integers(0, 9), terms
        ),
        st.builds(CapacityLeaseReleased, broker_ids, session_ids, st.integers(1, 3), st.just("x")),
    ),
)
def test_total(history: list[Command | BrokerRecorded], event: FoldedEvent) -> None:
    state = INITIAL
    for step in history:
        state, _ = _step(state, step)

    assert isinstance(evolve(state, event), Ledger)


def test_what_a_shard_holds_can_be_asked_for() -> None:
    state = _given(BEGAN, GRANTED, CapacityLeased("broker-1", "s-1", 1, 60, 5_000))

    assert state.lease_of("broker-1", 1) == Lease(60, 5_000)
    assert state.lease_of("broker-1", 2) is None
    assert state.lease_of("broker-9", 1) is None
