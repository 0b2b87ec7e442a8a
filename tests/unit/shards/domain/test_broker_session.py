"""The broker session aggregate: one live session, dead ones stay dead, grants never shrink."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.limits import BROKER_CAPACITY_UNITS_MAX
from shards.domain.broker_session import (
    INITIAL,
    REASON_CLOSED,
    REASON_EXPIRED,
    REASON_REPLACED,
    BrokerSession,
    BrokerSessionEnded,
    BrokerSessionEstablished,
    CapacityGranted,
    Endpoints,
    EndSession,
    EstablishSession,
    GrantCapacity,
    decide,
    evolve,
)
from shards.projections.evolution import StateKind
from tests.support.aggregate_properties import AggregateUnderTest, check_all_promises

ENDPOINTS = Endpoints("pulsar://h:6650", "h:7000", "h:8080")
ESTABLISHED = BrokerSessionEstablished("broker-1", "s-1", 1, ENDPOINTS, 100, "zone-a")
ENDED = BrokerSessionEnded("broker-1", "s-1", 1, REASON_EXPIRED)


def establish(session_id="s-1", capacity_units=100):
    return EstablishSession("broker-1", session_id, ENDPOINTS, capacity_units, "zone-a")


def end(session_id="s-1"):
    return EndSession("broker-1", session_id, REASON_EXPIRED)


def grant(units, session_id="s-1"):
    return GrantCapacity("broker-1", session_id, units)


def given_events(*events):
    return fold(evolve, INITIAL, events)


def code_of(decision):
    assert isinstance(decision, Rejected)
    return decision.code


def test_the_first_session_has_epoch_1():
    assert decide(INITIAL, establish()) == Accepted((ESTABLISHED,))
    expected = BrokerSession("broker-1", "s-1", 1, True, ENDPOINTS, 100, "zone-a", 0)
    assert given_events(ESTABLISHED) == expected


def test_establishing_the_same_session_again_is_a_retry():
    assert decide(given_events(ESTABLISHED), establish()) == Accepted(())


def test_a_live_session_is_ended_by_its_successor():
    decision = decide(given_events(ESTABLISHED), establish("s-2"))

    successor = replace(ESTABLISHED, session_id="s-2", epoch=2)
    assert decision == Accepted((replace(ENDED, reason=REASON_REPLACED), successor))


def test_an_ended_session_leaves_its_epoch_to_the_next():
    decision = decide(given_events(ESTABLISHED, ENDED), establish("s-2"))

    assert decision == Accepted((replace(ESTABLISHED, session_id="s-2", epoch=2),))


def test_an_ended_session_never_returns():
    decision = decide(given_events(ESTABLISHED, ENDED), establish("s-1"))

    assert code_of(decision) is RejectionCode.SESSION_EXPIRED


@pytest.mark.parametrize("units", [0, BROKER_CAPACITY_UNITS_MAX])
def test_a_capacity_within_the_limit_is_accepted(units):
    assert isinstance(decide(INITIAL, establish(capacity_units=units)), Accepted)


@pytest.mark.parametrize("units", [-1, BROKER_CAPACITY_UNITS_MAX + 1])
def test_a_capacity_beyond_the_limit_is_rejected(units):
    decision = decide(INITIAL, establish(capacity_units=units))

    assert code_of(decision) is RejectionCode.LIMIT_EXCEEDED


def test_a_live_session_is_ended():
    assert decide(given_events(ESTABLISHED), end()) == Accepted((ENDED,))
    assert given_events(ESTABLISHED, ENDED) == replace(given_events(ESTABLISHED), is_live=False)


@pytest.mark.parametrize(
    "history",
    [(ESTABLISHED, ENDED), (ESTABLISHED, ENDED, replace(ESTABLISHED, session_id="s-2", epoch=2))],
    ids=["ended", "replaced"],
)
def test_ending_a_session_that_is_over_changes_nothing(history):
    assert decide(given_events(*history), end()) == Accepted(())


def test_a_session_of_an_unknown_broker_cannot_be_ended():
    assert code_of(decide(INITIAL, end())) is RejectionCode.SESSION_EXPIRED


@pytest.mark.parametrize("units", [1, 100])
def test_capacity_is_granted_up_to_what_the_broker_has(units):
    decision = decide(given_events(ESTABLISHED), grant(units))

    assert decision == Accepted((CapacityGranted("broker-1", "s-1", units),))
    after = fold(evolve, given_events(ESTABLISHED), decision.events)
    assert after.granted_units == units


def test_a_smaller_grant_takes_nothing_back():
    granted = given_events(ESTABLISHED, CapacityGranted("broker-1", "s-1", 50))

    assert decide(granted, grant(20)) == Accepted(())


@pytest.mark.parametrize(
    ("history", "command", "code"),
    [
        pytest.param((), grant(1), RejectionCode.SESSION_EXPIRED, id="unknown"),
        pytest.param((ESTABLISHED, ENDED), grant(1), RejectionCode.SESSION_EXPIRED, id="ended"),
        pytest.param((ESTABLISHED,), grant(1, "s-2"), RejectionCode.SESSION_EXPIRED, id="other"),
        pytest.param((ESTABLISHED,), grant(101), RejectionCode.LIMIT_EXCEEDED, id="too-much"),
    ],
)
def test_a_grant_is_rejected(history, command, code):
    assert code_of(decide(given_events(*history), command)) is code


def test_a_new_session_starts_without_grants():
    history = (
        ESTABLISHED,
        CapacityGranted("broker-1", "s-1", 50),
        ENDED,
        replace(ESTABLISHED, session_id="s-2", epoch=2),
    )

    assert given_events(*history).granted_units == 0


sessions = st.sampled_from(["s-1", "s-2"])
commands = st.one_of(
    st.builds(
        EstablishSession,
        st.just("broker-1"),
        sessions,
        st.just(ENDPOINTS),
        st.sampled_from([-1, 0, 100]),
        st.sampled_from(["", "zone-a"]),
    ),
    st.builds(EndSession, st.just("broker-1"), sessions, st.just(REASON_CLOSED)),
    st.builds(GrantCapacity, st.just("broker-1"), sessions, st.integers(0, 120)),
)
SESSION = AggregateUnderTest(
    decide, evolve, StateKind.BROKER_SESSION, lambda state: state.broker_id
)


@given(history=st.lists(commands, max_size=15), command=commands, cut=st.integers(0, 100))
def test_retry_replay_snapshot_and_total_hold(history, command, cut):
    check_all_promises(SESSION, history, command, cut)


@given(history=st.lists(commands, max_size=20))
def test_grants_never_exceed_the_capacity_and_epochs_only_grow(history):
    state, events = SESSION.run(history)

    assert state is None or state.granted_units <= state.capacity_units
    epochs = [each.epoch for each in events if isinstance(each, BrokerSessionEstablished)]
    assert epochs == list(range(1, len(epochs) + 1))
