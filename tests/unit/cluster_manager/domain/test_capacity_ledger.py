"""The capacity ledger: leased <= granted <= capacity, whatever happens."""

from __future__ import annotations

import pytest
import sqlalchemy as sql
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.domain.broker_directory import Broker, BrokerRecorded
from cluster_manager.domain.capacity_ledger import (
    INITIAL,
    Account,
    CapacityGranted,
    CapacityLeased,
    CapacityLeaseReleased,
    Command,
    FoldedEvent,
    Lease,
    LeaseCapacity,
    Ledger,
    RecordGrant,
    ReleaseLeases,
    decide,
    evolve,
)
from cluster_manager.projections import tables
from cluster_manager.projections.fold import fold_event
from nextgen.kernel.decider import Accepted, Rejected, RejectionCode, fold

BEGAN = BrokerRecorded(Broker("broker-1", "s-1", 1, True, capacity_units=100))
ENDED = BrokerRecorded(Broker("broker-1", "s-1", 1, False, capacity_units=100))
GRANTED = CapacityGranted("broker-1", "s-1", 100)

broker_ids = st.sampled_from(["broker-1", "broker-2"])
session_ids = st.sampled_from(["s-1", "s-2"])
amounts = st.integers(0, 60)
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(RecordGrant, broker_ids, session_ids, amounts),
    st.builds(
        LeaseCapacity, broker_ids, session_ids, st.integers(1, 3), amounts, st.integers(0, 9)
    ),
    st.builds(ReleaseLeases, broker_ids, session_ids),
)
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
        (CapacityLeased("broker-1", "s-1", 1, 100, 5_000),)
    )


def test_leases_of_all_shards_together_never_exceed_the_grant() -> None:
    state = _given(BEGAN, GRANTED, CapacityLeased("broker-1", "s-1", 1, 60, 5_000))

    assert isinstance(decide(state, LeaseCapacity("broker-1", "s-1", 2, 40, 5_000)), Accepted)
    command = LeaseCapacity("broker-1", "s-1", 2, 41, 5_000)
    assert _code(state, command) is RejectionCode.NO_CAPACITY


def test_an_expired_lease_stays_counted_because_the_shard_may_have_used_it() -> None:
    """The ledger has no clock at all: nothing but the session's end frees units."""
    state = _given(BEGAN, GRANTED, CapacityLeased("broker-1", "s-1", 1, 100, 1))

    command = LeaseCapacity("broker-1", "s-1", 2, 1, 9_999_999)
    assert _code(state, command) is RejectionCode.NO_CAPACITY


def test_a_lease_never_shrinks_and_never_ends_earlier() -> None:
    state = _given(BEGAN, GRANTED, CapacityLeased("broker-1", "s-1", 1, 60, 5_000))

    assert decide(state, LeaseCapacity("broker-1", "s-1", 1, 10, 4_000)) == Accepted(())
    assert decide(state, LeaseCapacity("broker-1", "s-1", 1, 10, 6_000)) == Accepted(
        (CapacityLeased("broker-1", "s-1", 1, 60, 6_000),)
    )


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


def test_capacity_that_shrinks_within_a_session_leaves_the_grant_as_it_is() -> None:
    shrunk = BrokerRecorded(Broker("broker-1", "s-1", 1, True, capacity_units=10))

    state = _given(BEGAN, GRANTED, shrunk)

    assert state.accounts["broker-1"] == Account("s-1", True, 100, 100)


@given(history=steps)
def test_the_sums_hold_in_every_reachable_state(history: list[Command | BrokerRecorded]) -> None:
    state = INITIAL
    for step in history:
        state, _ = _step(state, step)
        for account in state.accounts.values():
            assert 0 <= account.leased_units <= account.granted_units <= account.capacity_units
            assert all(lease.units > 0 for lease in account.leases.values())


@given(history=steps, command=commands)
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
            CapacityLeased, broker_ids, session_ids, st.integers(1, 3), amounts, st.integers(0, 9)
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
