"""The broker session aggregate: one live session, dead ones stay dead, grants never shrink."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.limits.cluster import BROKER_CAPACITY_UNITS_MAX
from nextgen.kernel.limits.placement import (
    DRAIN_UNITS_PER_SECOND_MAX,
    QUARANTINE_MS,
    QUARANTINE_WINDOW_MS,
    SESSIONS_STARTED_MAX,
)
from shards.domain.broker_session import (
    INITIAL,
    REASON_CLOSED,
    REASON_EXPIRED,
    REASON_REPLACED,
    BrokerCapacitySet,
    BrokerDrainSet,
    BrokerLoadReported,
    BrokerSession,
    BrokerSessionEnded,
    BrokerSessionEstablished,
    CapacityGranted,
    Endpoints,
    EndSession,
    EstablishSession,
    GrantCapacity,
    SetCapacity,
    SetDrain,
    decide,
    evolve,
)
from shards.domain.states import StateKind
from tests.support.shards.aggregate_properties import AggregateUnderTest, check_all_promises

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


def drain(*, draining=True, units_per_second=50, session_id="s-1"):
    return SetDrain("broker-1", session_id, draining, units_per_second)


DRAINING = BrokerDrainSet("broker-1", "s-1", True, 50, 1)


def test_a_drain_is_set_and_taken_back_and_each_has_its_revision():
    assert decide(given_events(ESTABLISHED), drain()) == Accepted((DRAINING,))
    draining = given_events(ESTABLISHED, DRAINING)
    assert (draining.draining, draining.drain_units_per_second, draining.revision) == (True, 50, 1)

    undone = BrokerDrainSet("broker-1", "s-1", False, 0, 2)
    assert decide(draining, drain(draining=False)) == Accepted((undone,))
    after = evolve(draining, undone)
    assert (after.draining, after.drain_units_per_second, after.revision) == (False, 0, 2)


def test_a_drain_that_is_set_already_changes_nothing_and_another_rate_does():
    draining = given_events(ESTABLISHED, DRAINING)

    assert decide(draining, drain()) == Accepted(())
    assert decide(given_events(ESTABLISHED), drain(draining=False)) == Accepted(())
    faster = replace(DRAINING, units_per_second=51, revision=2)
    assert decide(draining, drain(units_per_second=51)) == Accepted((faster,))


@pytest.mark.parametrize(
    ("history", "command", "code"),
    [
        pytest.param((), drain(), RejectionCode.SESSION_EXPIRED, id="unknown"),
        pytest.param((ESTABLISHED, ENDED), drain(), RejectionCode.SESSION_EXPIRED, id="ended"),
        pytest.param(
            (ESTABLISHED,), drain(session_id="s-2"), RejectionCode.SESSION_EXPIRED, id="other"
        ),
        pytest.param(
            (ESTABLISHED,), drain(units_per_second=-1), RejectionCode.LIMIT_EXCEEDED, id="negative"
        ),
        pytest.param(
            (ESTABLISHED,),
            drain(units_per_second=DRAIN_UNITS_PER_SECOND_MAX + 1),
            RejectionCode.LIMIT_EXCEEDED,
            id="too-fast",
        ),
    ],
)
def test_a_drain_is_rejected(history, command, code):
    assert code_of(decide(given_events(*history), command)) is code


def test_a_drain_at_the_highest_rate_is_accepted():
    command = drain(units_per_second=DRAIN_UNITS_PER_SECOND_MAX)

    assert isinstance(decide(given_events(ESTABLISHED), command), Accepted)


def test_a_session_that_follows_a_drained_one_is_not_draining():
    successor = replace(ESTABLISHED, session_id="s-2", epoch=2)

    after = given_events(ESTABLISHED, DRAINING, ENDED, successor)

    assert (after.draining, after.drain_units_per_second, after.revision) == (False, 0, 0)


def starts_at(*times_ms):
    """Return the state after a session began at each of these times."""
    state = INITIAL
    for number, at_ms in enumerate(times_ms):
        command = replace(establish(f"s-{number}"), at_ms=at_ms)
        state = fold(evolve, state, decide(state, command).events)
    return state


def test_a_broker_that_came_as_often_as_it_may_is_not_in_quarantine():
    times = [1_000 + 10 * each for each in range(SESSIONS_STARTED_MAX)]

    assert starts_at(*times).quarantined_until_ms == 0


def test_a_broker_that_came_once_more_is_in_quarantine():
    times = [1_000 + 10 * each for each in range(SESSIONS_STARTED_MAX + 1)]

    state = starts_at(*times)

    assert state.is_live
    assert state.quarantined_until_ms == times[-1] + QUARANTINE_MS


@pytest.mark.parametrize(("passed_ms", "is_in"), [(-1, True), (0, False)])
def test_starts_are_counted_within_the_window(passed_ms, is_in):
    times = [1_000] * SESSIONS_STARTED_MAX

    state = starts_at(*times, 1_000 + QUARANTINE_WINDOW_MS + passed_ms)

    assert (state.quarantined_until_ms > 0) is is_in


def test_a_quarantine_is_served_to_its_end_by_the_sessions_that_follow():
    times = [1_000] * (SESSIONS_STARTED_MAX + 1)
    until_ms = 1_000 + QUARANTINE_MS

    at_end_of_window = 1_000 + QUARANTINE_WINDOW_MS - 1
    assert starts_at(*times, at_end_of_window).quarantined_until_ms > until_ms
    assert starts_at(*times, until_ms).quarantined_until_ms == 0


def test_a_quarantine_is_served_to_its_end_though_starts_fell_out_of_the_window():
    step_ms = QUARANTINE_WINDOW_MS // (SESSIONS_STARTED_MAX + 1)
    times = [1_000 + step_ms * each for each in range(SESSIONS_STARTED_MAX + 1)]
    until_ms = times[-1] + QUARANTINE_MS

    assert starts_at(*times).quarantined_until_ms == until_ms
    assert starts_at(*times, times[2] + QUARANTINE_WINDOW_MS).quarantined_until_ms == until_ms
    assert starts_at(*times, until_ms).quarantined_until_ms == 0


def test_sessions_of_a_release_that_counted_no_starts_are_not_counted():
    assert starts_at(*[0] * 20).started_at_ms == ()
    assert starts_at(*[0] * 20, 5_000).quarantined_until_ms == 0


def test_a_load_report_changes_no_state():
    established = given_events(ESTABLISHED)

    assert evolve(established, BrokerLoadReported("broker-1", "s-1", b"load")) == established


def set_capacity(units, session_id="s-1"):
    return SetCapacity("broker-1", session_id, units)


def test_a_lowered_capacity_lowers_the_grant_and_can_be_raised_to_what_was_announced():
    granted = given_events(ESTABLISHED, CapacityGranted("broker-1", "s-1", 80))
    lowered = BrokerCapacitySet("broker-1", "s-1", 60, 1, 60)
    assert decide(granted, set_capacity(60)) == Accepted((lowered,))
    after = evolve(granted, lowered)
    assert (after.capacity_units, after.announced_units, after.granted_units) == (60, 100, 60)
    assert decide(after, set_capacity(60)) == Accepted(())
    too_much = decide(after, GrantCapacity("broker-1", "s-1", 61))
    assert too_much.code is RejectionCode.LIMIT_EXCEEDED

    raised = BrokerCapacitySet("broker-1", "s-1", 100, 2, 60)
    assert decide(after, set_capacity(100)) == Accepted((raised,))
    back = evolve(after, raised)
    assert (back.capacity_units, back.announced_units, back.granted_units) == (100, 0, 60)
    assert decide(back, GrantCapacity("broker-1", "s-1", 100)) == Accepted(
        (CapacityGranted("broker-1", "s-1", 100),)
    )


@pytest.mark.parametrize("units", [-1, 0, 101])
def test_a_capacity_that_cannot_be_is_refused_with_the_fields_name(units):
    rejected = decide(given_events(ESTABLISHED), set_capacity(units))

    assert rejected.code is RejectionCode.LIMIT_EXCEEDED
    assert rejected.message == (
        f"capacity_units is {units}, it may be 1 to 100, which broker broker-1 announced"
    )


@pytest.mark.parametrize(
    ("history", "command"),
    [
        pytest.param((), set_capacity(10), id="unknown"),
        pytest.param((ESTABLISHED, ENDED), set_capacity(10), id="ended"),
        pytest.param((ESTABLISHED,), set_capacity(10, "s-2"), id="other"),
    ],
)
def test_the_capacity_of_a_session_that_is_not_live_is_not_changed(history, command):
    assert decide(given_events(*history), command).code is RejectionCode.SESSION_EXPIRED


def test_a_drain_after_a_change_of_capacity_has_the_next_revision():
    lowered = BrokerCapacitySet("broker-1", "s-1", 60, 1, 0)

    assert decide(given_events(ESTABLISHED, lowered), drain()) == Accepted(
        (replace(DRAINING, revision=2),)
    )


def test_a_new_session_has_the_capacity_that_it_announces():
    lowered = BrokerCapacitySet("broker-1", "s-1", 60, 1, 0)
    successor = replace(ESTABLISHED, session_id="s-2", epoch=2)

    state = given_events(ESTABLISHED, lowered, ENDED, successor)

    assert (state.capacity_units, state.announced_units, state.revision) == (100, 0, 0)


sessions = st.sampled_from(["s-1", "s-2"])
commands = st.one_of(
    st.builds(
        EstablishSession,
        st.just("broker-1"),
        sessions,
        st.just(ENDPOINTS),
        st.sampled_from([-1, 0, 100]),
        st.sampled_from(["", "zone-a"]),
        st.sampled_from(["", "rack-1"]),
        st.integers(0, 3 * QUARANTINE_WINDOW_MS),
    ),
    st.builds(EndSession, st.just("broker-1"), sessions, st.just(REASON_CLOSED)),
    st.builds(GrantCapacity, st.just("broker-1"), sessions, st.integers(0, 120)),
    st.builds(SetCapacity, st.just("broker-1"), sessions, st.integers(-1, 101)),
    st.builds(
        SetDrain, st.just("broker-1"), sessions, st.booleans(), st.sampled_from([-1, 0, 1, 50])
    ),
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


def test_a_session_begins_at_the_least_epoch_that_the_term_allows():
    (first,) = decide(INITIAL, replace(establish(), least_epoch=1 << 32)).events

    assert first.epoch == 1 << 32
