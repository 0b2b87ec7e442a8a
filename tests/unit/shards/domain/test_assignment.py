"""The assignment aggregate: epochs grow, live owners stay, moves are meant."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.limits.placement import EPOCH_JUMP_MAX
from nextgen.kernel.routing.names import assignment_key, parse_topic
from shards.domain.assignment import (
    INITIAL,
    REASON_BROKER_LOST,
    REASON_EPOCH_USED,
    REASON_FIRST_LOOKUP,
    REASON_MOVED,
    REASON_TOPIC_DELETED,
    Assignment,
    AssignTopic,
    MoveTopic,
    RaiseEpoch,
    TopicAssigned,
    TopicUnassigned,
    UnassignTopic,
    decide,
    evolve,
    unit_key,
)
from shards.domain.states import StateKind
from tests.support.shards.aggregate_properties import AggregateUnderTest, check_all_promises

NAME = "persistent://acme/orders/paid-partition-3"
FIRST = TopicAssigned("t-1", "p3", NAME, 1, "broker-1", "s-1", REASON_FIRST_LOOKUP)
UNASSIGN = UnassignTopic("t-1", "p3", REASON_TOPIC_DELETED)
UNASSIGNED = TopicUnassigned("t-1", "p3", NAME, 1, REASON_TOPIC_DELETED)


def assign(broker_id="broker-1", session_id="s-1", *, is_owner_live=False):
    return AssignTopic("t-1", "p3", NAME, broker_id, session_id, is_owner_live)


def move(session_id="s-2", expected_epoch=0):
    return MoveTopic("t-1", "p3", NAME, "broker-2", session_id, expected_epoch)


def given_events(*events):
    return fold(evolve, INITIAL, events)


def code_of(decision):
    assert isinstance(decision, Rejected)
    return decision.code


def test_the_first_assignment_has_epoch_1():
    assert decide(INITIAL, assign()) == Accepted((FIRST,))
    assert given_events(FIRST) == Assignment("t-1", "p3", NAME, 1, "broker-1", "s-1")


@pytest.mark.parametrize("is_owner_live", [True, False])
def test_assigning_to_the_session_that_has_it_changes_nothing(is_owner_live):
    assert decide(given_events(FIRST), assign(is_owner_live=is_owner_live)) == Accepted(())


def test_a_live_owner_is_not_replaced():
    decision = decide(given_events(FIRST), assign("broker-2", "s-2", is_owner_live=True))

    assert code_of(decision) is RejectionCode.NOT_ALLOWED


def test_a_lost_owner_is_replaced_with_the_next_epoch():
    decision = decide(given_events(FIRST), assign("broker-2", "s-2"))

    second = replace(
        FIRST, epoch=2, broker_id="broker-2", session_id="s-2", reason=REASON_BROKER_LOST
    )
    assert decision == Accepted((second,))


def raise_epoch(used_epoch, fenced_epoch=1):
    return RaiseEpoch("t-1", "p3", NAME, fenced_epoch, used_epoch)


@pytest.mark.parametrize("used_epoch", [1, 2, 9, 1 + EPOCH_JUMP_MAX])
def test_an_owner_whose_ledger_knows_later_epochs_gets_the_next_one(used_epoch):
    decision = decide(given_events(FIRST), raise_epoch(used_epoch))

    raised = replace(FIRST, epoch=used_epoch + 1, reason=REASON_EPOCH_USED, used_epoch=used_epoch)
    assert decision == Accepted((raised,))
    assert given_events(FIRST, raised).epoch == used_epoch + 1


@pytest.mark.parametrize("used_epoch", [2 + EPOCH_JUMP_MAX, 2**63 - 1, 2**64 - 1])
def test_an_epoch_too_far_ahead_is_taken_for_damage(used_epoch):
    decision = decide(given_events(FIRST), raise_epoch(used_epoch))

    assert code_of(decision) is RejectionCode.LIMIT_EXCEEDED


@pytest.mark.parametrize(
    "before",
    [
        INITIAL,
        given_events(FIRST, UNASSIGNED),
        given_events(FIRST, replace(FIRST, epoch=2, session_id="s-2")),
    ],
    ids=["never assigned", "assigned to nobody", "assigned again"],
)
def test_an_epoch_is_raised_of_the_assignment_that_was_fenced_only(before):
    assert decide(before, raise_epoch(9)) == Accepted(())


def test_an_epoch_that_no_ledger_has_used_is_not_raised():
    assert decide(given_events(FIRST), raise_epoch(0)) == Accepted(())


def test_an_unassigned_unit_keeps_its_epoch_and_goes_on_from_it():
    unassigned = given_events(FIRST, UNASSIGNED)

    assert unassigned == Assignment("t-1", "p3", NAME, 1, "", "")
    assert decide(unassigned, assign()) == Accepted((replace(FIRST, epoch=2),))


@pytest.mark.parametrize("expected_epoch", [0, 1])
def test_a_move_takes_the_unit_from_a_live_owner(expected_epoch):
    decision = decide(given_events(FIRST), move(expected_epoch=expected_epoch))

    moved = replace(FIRST, epoch=2, broker_id="broker-2", session_id="s-2", reason=REASON_MOVED)
    assert decision == Accepted((moved,))


def test_a_repeated_move_is_accepted_though_the_epoch_has_moved_on():
    moved = replace(FIRST, epoch=2, broker_id="broker-2", session_id="s-2", reason=REASON_MOVED)

    assert decide(given_events(FIRST, moved), move(expected_epoch=1)) == Accepted(())


@pytest.mark.parametrize(
    ("history", "command", "code"),
    [
        pytest.param((), move(), RejectionCode.NOT_FOUND, id="never-assigned"),
        pytest.param((FIRST, UNASSIGNED), move(), RejectionCode.NOT_FOUND, id="unassigned"),
        pytest.param((FIRST,), move(expected_epoch=7), RejectionCode.STALE_EPOCH, id="epoch"),
    ],
)
def test_a_move_is_rejected(history, command, code):
    assert code_of(decide(given_events(*history), command)) is code


def test_unassigning_names_the_epoch_that_ended():
    assert decide(given_events(FIRST), UNASSIGN) == Accepted((UNASSIGNED,))


@pytest.mark.parametrize("history", [(), (FIRST, UNASSIGNED)], ids=["never", "already"])
def test_unassigning_what_nobody_has_changes_nothing(history):
    assert decide(given_events(*history), UNASSIGN) == Accepted(())


@pytest.mark.parametrize("name", ["persistent://a/b/c", NAME, "segment://a/b/c/0000-7fff-3"])
def test_the_key_is_the_one_that_the_kernel_makes(name):
    unit = parse_topic(name).unit

    assert unit_key("t-1", unit.text) == assignment_key("t-1", unit)
    assert FIRST.key == UNASSIGNED.key == given_events(FIRST).key == "t-1/p3"


sessions = st.sampled_from(["s-1", "s-2", "s-3"])
fixed = (st.just("t-1"), st.just("p3"), st.just(NAME), st.just("broker-1"))
commands = st.one_of(
    st.builds(AssignTopic, *fixed, sessions, st.booleans()),
    st.builds(MoveTopic, *fixed, sessions, st.integers(0, 4)),
    st.builds(RaiseEpoch, *fixed[:3], st.integers(0, 6), st.integers(0, 12)),
    st.just(UNASSIGN),
)
ASSIGNMENT = AggregateUnderTest(decide, evolve, StateKind.ASSIGNMENT, lambda state: state.key)


@given(history=st.lists(commands, max_size=15), command=commands, cut=st.integers(0, 100))
def test_retry_replay_snapshot_and_total_hold(history, command, cut):
    check_all_promises(ASSIGNMENT, history, command, cut)


@given(history=st.lists(commands, max_size=20))
def test_epochs_of_assignments_are_dense_from_1_but_for_those_that_a_ledger_has_used(history):
    _, events = ASSIGNMENT.run(history)

    before = 0
    for event in events:
        if isinstance(event, TopicAssigned):
            assert event.epoch == max(before, event.used_epoch) + 1
            assert (event.used_epoch > 0) == (event.reason == REASON_EPOCH_USED)
            before = event.epoch


def test_an_epoch_begins_at_the_least_that_the_term_allows():
    """The shard's last survivor was promoted: lower ones may have been used by the lost."""
    (first,) = decide(INITIAL, replace(assign(), least_epoch=1 << 32)).events
    (moved,) = decide(given_events(FIRST), replace(move(), least_epoch=1 << 32)).events
    (later,) = decide(given_events(FIRST, moved), replace(move("s-3"), least_epoch=1 << 32)).events

    again = RaiseEpoch("t-1", "p3", NAME, fenced_epoch=1, used_epoch=3, least_epoch=1 << 32)
    (raised,) = decide(given_events(FIRST), again).events

    assert (first.epoch, moved.epoch, later.epoch) == (1 << 32, 1 << 32, (1 << 32) + 1)
    assert raised.epoch == 1 << 32
