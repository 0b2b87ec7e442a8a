"""The gate of a parent: every order, in every condition, and the messages that come late."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from shards.domain.parent_gate import (
    INITIAL,
    CloseParentGate,
    OpenParentGate,
    ParentGate,
    ParentGateClosed,
    ParentGateOpened,
    ParentKind,
    ReopenParentGate,
    decide,
    evolve,
    gate_key,
)
from shards.domain.states import StateKind
from tests.support.shards.aggregate_properties import AggregateUnderTest, check_all_promises

KIND = ParentKind.NAMESPACE
NAME = "acme/orders"


def opened(parent_id="p-1", attempt=0):
    return ParentGateOpened(KIND, NAME, parent_id, attempt)


def closed(parent_id="p-1", attempt=1):
    return ParentGateClosed(KIND, NAME, parent_id, attempt)


def open_gate(parent_id="p-1", expected_version=0):
    return OpenParentGate(KIND, NAME, parent_id, expected_version)


def close_gate(parent_id="p-1", attempt=1, *, has_children=False):
    return CloseParentGate(KIND, NAME, parent_id, attempt, has_children)


def reopen_gate(parent_id="p-1", attempt=1):
    return ReopenParentGate(KIND, NAME, parent_id, attempt)


def given_events(*events):
    return fold(evolve, INITIAL, events)


def code_of(decision):
    assert isinstance(decision, Rejected)
    return decision.code


def test_a_gate_that_was_never_seen_is_opened():
    assert decide(INITIAL, open_gate()) == Accepted((opened(),))
    assert given_events(opened()) == ParentGate(KIND, NAME, "p-1", True, 0, 1)


def test_an_open_gate_is_not_opened_again():
    assert decide(given_events(opened()), open_gate(expected_version=9)) == Accepted(())


def test_a_gate_that_was_closed_for_a_parent_is_not_opened_for_it():
    decision = decide(given_events(opened(), closed()), open_gate(expected_version=2))

    assert code_of(decision) is RejectionCode.PARENT_NOT_FOUND


def test_a_gate_closed_for_a_deleted_parent_opens_for_its_successor():
    gate = given_events(opened(), closed(attempt=1))

    decision = decide(gate, open_gate("p-2", expected_version=2))

    assert decision == Accepted((opened("p-2", attempt=1),))


def test_a_late_opener_with_an_older_parent_is_refused():
    """1. The parent p-1 is read. 2. It is deleted, p-2 takes its name and is closed again.
    3. The opener comes with what it read in 1."""
    gate = given_events(closed("p-1"), opened("p-2"), closed("p-2", 2))

    assert code_of(decide(gate, open_gate("p-1"))) is RejectionCode.VERSION_MISMATCH


def test_closing_is_final_even_where_the_gate_was_never_open():
    assert decide(INITIAL, close_gate()) == Accepted((closed(),))
    gate = given_events(closed())
    assert code_of(decide(gate, open_gate(expected_version=1))) is RejectionCode.PARENT_NOT_FOUND


def test_a_gate_with_children_behind_it_is_not_closed():
    decision = decide(given_events(opened()), close_gate(has_children=True))

    assert code_of(decision) is RejectionCode.NOT_EMPTY


def test_a_later_attempt_takes_over_a_closed_gate():
    gate = given_events(opened(), closed(attempt=1))

    assert decide(gate, close_gate(attempt=2)) == Accepted((closed(attempt=2),))


def test_an_earlier_attempt_does_not_close_what_a_later_one_reopened():
    gate = given_events(opened(), closed(attempt=2), opened(attempt=2))

    assert code_of(decide(gate, close_gate(attempt=1))) is RejectionCode.STALE_EPOCH
    assert code_of(decide(gate, close_gate(attempt=2))) is RejectionCode.STALE_EPOCH


def test_an_earlier_attempt_does_not_reopen_what_a_later_one_closed():
    gate = given_events(opened(), closed(attempt=1), closed(attempt=2))

    assert code_of(decide(gate, reopen_gate(attempt=1))) is RejectionCode.STALE_EPOCH


def test_the_attempt_that_closed_a_gate_reopens_it():
    gate = given_events(opened(), closed(attempt=1))

    assert decide(gate, reopen_gate(attempt=1)) == Accepted((opened(attempt=1),))


@pytest.mark.parametrize("history", [(), (opened(),)], ids=["never-seen", "open"])
def test_giving_an_attempt_up_keeps_its_late_orders_out(history):
    """1. An order to close is delayed. 2. The attempt is given up. 3. The order arrives."""
    gate = given_events(*history)

    decision = decide(gate, reopen_gate(attempt=1))
    gate = fold(evolve, gate, decision.events)

    assert gate.is_open
    assert code_of(decide(gate, close_gate(attempt=1))) is RejectionCode.STALE_EPOCH


@pytest.mark.parametrize("order", [close_gate("p-1", 1), close_gate("p-1", 2), reopen_gate("p-1")])
def test_late_orders_about_a_deleted_parent_do_not_touch_its_successor(order):
    """1. Attempts 1 and 2 delete p-1. 2. p-2 takes its name. 3. Their orders arrive again."""
    gate = given_events(closed("p-1", 2), opened("p-2", 2))

    assert code_of(decide(gate, order)) is RejectionCode.STALE_EPOCH


def test_giving_an_attempt_up_opens_a_gate_that_was_closed_for_a_predecessor():
    """The gate has not seen the successor yet: the order to close it may still come."""
    gate = given_events(closed("p-1", 1))

    assert decide(gate, reopen_gate("p-2", 2)) == Accepted((opened("p-2", 2),))


ids = st.sampled_from(["p-1", "p-2"])
commands = st.one_of(
    st.builds(OpenParentGate, st.just(KIND), st.just(NAME), ids, st.integers(0, 6)),
    st.builds(CloseParentGate, st.just(KIND), st.just(NAME), ids, st.integers(1, 3), st.booleans()),
    st.builds(ReopenParentGate, st.just(KIND), st.just(NAME), ids, st.integers(1, 3)),
)
GATE = AggregateUnderTest(decide, evolve, StateKind.PARENT_GATE, lambda state: state.key)


@given(history=st.lists(commands, max_size=15), command=commands, cut=st.integers(0, 100))
def test_retry_replay_snapshot_and_total_hold(history, command, cut):
    check_all_promises(GATE, history, command, cut)


@given(history=st.lists(commands, max_size=20))
def test_the_version_grows_with_each_event(history):
    gate, events = GATE.run(history)

    assert (gate.version if gate is not None else 0) == len(events)


def test_gates_of_a_tenant_and_a_namespace_have_different_keys():
    assert gate_key(ParentKind.TENANT, "a") != gate_key(ParentKind.NAMESPACE, "a")
