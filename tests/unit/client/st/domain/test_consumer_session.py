"""The session of a consumer with its controller as a state machine, and its assignments."""

from __future__ import annotations

import pytest

from nextgen.client.st.domain.assignment import (
    AssignedSegment,
    Assignment,
    change_between,
    make_assignment,
)
from nextgen.client.st.domain.consumer_session import (
    Assigned,
    Connect,
    ConsumerSession,
    Leave,
    Pause,
    Register,
    StartFailed,
)
from nextgen.client.st.errors import AlreadyClosed, ConnectionFailed, MalformedLayout, ServerRefused
from nextgen.kernel.limits.scalable import LAYOUT_SEGMENTS_MAX

TOPIC = "segment://public/default/t/0000-ffff-"
ONE = AssignedSegment(1, TOPIC + "1")
TWO = AssignedSegment(2, TOPIC + "2")
SHARED = AssignedSegment(1, TOPIC + "1", ((0, 0x7FFF), (0x8000, 0xFFFF)))
LOST = ConnectionFailed("lost")


def registering() -> ConsumerSession:
    session = ConsumerSession()
    session.start()
    session.connected(1)
    return session


def test_a_consumer_registers_and_gets_its_segments() -> None:
    session = ConsumerSession()
    assignment = Assignment(3, (ONE,))

    assert session.start() == (Connect(),)
    assert session.connected(9) == (Register(9),)
    assert session.assigned(9, assignment) == (Assigned(assignment, None),)


def test_an_assignment_of_the_same_epoch_is_taken_and_an_older_one_is_not() -> None:
    session = registering()
    first, second = Assignment(3, (ONE,)), Assignment(3, (ONE, TWO))
    session.assigned(1, first)

    assert session.assigned(1, second) == (Assigned(second, first),)
    assert session.assigned(1, second) == ()
    assert session.assigned(1, Assignment(2, ())) == ()
    assert session.assignment is second


def test_epochs_start_anew_with_a_topic_that_was_created_again() -> None:
    session = registering()
    session.assigned(1, Assignment(3, (ONE,)))
    session.topic_recreated()

    assert session.assigned(1, Assignment(0, (TWO,))) != ()


def test_assignments_for_another_consumer_are_dropped() -> None:
    assert registering().assigned(2, Assignment(3, (ONE,))) == ()


def test_an_elected_controller_is_waited_for_and_a_final_refusal_is_not() -> None:
    session = registering()

    assert session.failed(LOST) == (Pause(100),)
    assert session.failed(LOST) == ()
    assert session.paused() == (Connect(),)
    assert session.failed(LOST) == (Pause(200),)
    session.paused()
    session.connected(2)
    refusal = ServerRefused(22, "not allowed")
    assert session.failed(refusal, is_final=True) == (StartFailed(refusal),)


def test_a_consumer_that_has_segments_registers_again_whatever_happens() -> None:
    session = registering()
    session.assigned(1, Assignment(3, (ONE,)))

    assert session.connection_lost(1) == (Pause(100),)
    assert session.connection_lost(1) == ()
    session.paused()
    assert session.failed(ServerRefused(22, "x"), is_final=True) == (Pause(200),)
    session.paused()
    session.connected(5)
    assert session.assigned(1, Assignment(4, ())) == (), "of the former connection"
    assert session.assigned(5, Assignment(3, (ONE,))) == (), "nothing has changed"


def test_closing_leaves_the_group_once() -> None:
    session = registering()
    session.assigned(1, Assignment(3, (ONE,)))

    assert session.close() == (Leave(1),)
    assert session.close() == ()


def test_closing_before_the_first_assignment_fails_the_start() -> None:
    leave, failed = registering().close()

    assert leave == Leave(1)
    assert isinstance(failed, StartFailed)
    assert isinstance(failed.error, AlreadyClosed)


def test_a_segment_whose_buckets_are_the_same_is_not_joined_again() -> None:
    former = Assignment(3, (SHARED, TWO))

    change = change_between(former, Assignment(4, (SHARED,)))

    assert (change.joined, change.left) == ((), (TWO,))


def test_a_segment_that_is_shared_from_now_on_is_left_and_joined() -> None:
    change = change_between(Assignment(3, (ONE,)), Assignment(3, (SHARED,)))

    assert (change.joined, change.left) == ((SHARED,), (ONE,))
    assert (SHARED.is_shared, ONE.is_shared) == (True, False)


def test_an_assignment_that_names_a_segment_twice_is_refused() -> None:
    with pytest.raises(MalformedLayout):
        make_assignment(1, (ONE, SHARED))


def test_an_assignment_has_at_most_LAYOUT_SEGMENTS_MAX_segments() -> None:
    segments = [AssignedSegment(number, f"{number}") for number in range(LAYOUT_SEGMENTS_MAX + 1)]

    make_assignment(1, segments[:LAYOUT_SEGMENTS_MAX])
    with pytest.raises(MalformedLayout):
        make_assignment(1, segments)
