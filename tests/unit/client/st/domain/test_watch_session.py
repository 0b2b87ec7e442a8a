"""The watch of a layout as a state machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.client.st.domain.layout import Layout
from nextgen.client.st.domain.watch_session import (
    Changed,
    CloseSession,
    Connect,
    Effect,
    Lookup,
    Pause,
    Started,
    StartFailed,
    Vanished,
    WatchSession,
    WatchStatus,
)
from nextgen.client.st.errors import (
    AlreadyClosed,
    ConnectionFailed,
    MalformedLayout,
    NotSupported,
    TimedOut,
    TopicNotFound,
)
from nextgen.kernel.limits.scalable import DELETED_AFTER_ANSWERS
from tests.unit.client.st.domain.layouts import new_layout, split

TOPIC = "topic://public/default/t"
FIRST = new_layout(1)
SECOND = split(FIRST, 0)
NOT_FOUND = TopicNotFound("no such topic")


def asking() -> WatchSession:
    session = WatchSession("persistent://public/default/t", create_if_missing=True)
    session.start()
    session.connected(1, has_scalable_topics=True)
    return session


def live(layout: Layout = FIRST) -> WatchSession:
    session = asking()
    session.updated(1, layout, TOPIC)
    return session


def again(session: WatchSession, session_id: int) -> tuple[Effect, ...]:
    assert session.paused() == (Connect(),)
    return session.connected(session_id, has_scalable_topics=True)


def test_the_first_layout_starts_the_session_and_its_topic_is_the_resolved_one() -> None:
    session = WatchSession("persistent://public/default/t", create_if_missing=True)

    assert session.start() == (Connect(),)
    assert session.connected(7, has_scalable_topics=True) == (
        Lookup(7, "persistent://public/default/t", True),
    )
    assert session.updated(7, FIRST, TOPIC) == (Started(FIRST),)
    assert session.topic == TOPIC
    assert session.updated(7, SECOND, TOPIC) == (Changed(SECOND, FIRST),)


@pytest.mark.parametrize(
    "fail",
    [
        lambda session: session.connected(1, has_scalable_topics=False),
        lambda session: session.connect_failed(ConnectionFailed("refused")),
    ],
)
def test_a_start_fails_fast_without_a_connection_or_without_the_feature(fail) -> None:
    session = WatchSession(TOPIC, create_if_missing=False)
    session.start()

    (effect,) = fail(session)

    assert isinstance(effect, StartFailed)
    assert isinstance(effect.error, NotSupported | ConnectionFailed)
    assert session.status is WatchStatus.CLOSED


@pytest.mark.parametrize("error", [NOT_FOUND, MalformedLayout("overlap")])
def test_an_error_or_a_malformed_layout_in_place_of_the_first_layout_fails_the_start(error) -> None:
    session = asking()

    assert session.refused(1, error) == (CloseSession(1), StartFailed(error))


def test_a_lost_connection_or_silence_before_the_first_layout_fails_the_start() -> None:
    (lost,) = asking().connection_lost(1)
    closed, silent = asking().timed_out(1)

    assert isinstance(lost, StartFailed)
    assert closed == CloseSession(1)
    assert isinstance(silent, StartFailed)
    assert isinstance(silent.error, TimedOut)


def test_a_malformed_layout_later_keeps_the_last_good_one() -> None:
    session = live()

    assert session.refused(1, MalformedLayout("overlap")) == ()
    assert session.layout is FIRST
    assert session.updated(1, SECOND) == (Changed(SECOND, FIRST),)


def test_an_older_layout_is_ignored_and_one_of_the_same_epoch_brings_its_hints() -> None:
    session = live(SECOND)

    assert session.updated(1, FIRST) == ()
    assert session.layout is SECOND
    assert session.updated(1, SECOND) == (Changed(SECOND, SECOND, is_repeated=True),)


def test_updates_for_another_session_are_dropped() -> None:
    session = live()

    assert session.updated(2, SECOND) == ()
    assert session.refused(2, NOT_FOUND) == ()
    assert session.connection_lost(2) == ()


def test_pauses_double_from_100_ms_to_30_s_and_begin_anew_after_a_layout() -> None:
    session = live()
    pauses = []
    (pause,) = session.connection_lost(1)
    for _ in range(10):
        assert isinstance(pause, Pause)
        pauses.append(pause.delay_ms)
        session.paused()
        (pause,) = session.connect_failed(ConnectionFailed("refused"))

    assert pauses == [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000]
    again(session, 2)
    session.updated(2, SECOND)
    assert session.connection_lost(2) == (Pause(100),)


def test_whatever_fails_during_a_pause_starts_no_second_attempt() -> None:
    session = live()

    assert session.connection_lost(1) == (Pause(100),)
    assert session.connection_lost(1) == ()
    assert session.connect_failed(ConnectionFailed("late")) == ()
    assert session.timed_out(1) == ()
    assert session.paused() == (Connect(),)
    assert session.paused() == ()


def test_a_client_that_comes_back_does_not_create_the_topic() -> None:
    session = live()
    session.connection_lost(1)

    (lookup,) = again(session, 2)

    assert lookup == Lookup(2, TOPIC, False)


def test_DELETED_AFTER_ANSWERS_answers_that_it_is_not_found_mean_that_it_is_deleted() -> None:
    session = live()
    seen: list[Effect] = []
    for session_id in range(1, DELETED_AFTER_ANSWERS + 2):
        effects = session.refused(session_id, NOT_FOUND)
        seen += [each for each in effects if isinstance(each, Vanished)]
        assert session.is_vanished is (session_id >= DELETED_AFTER_ANSWERS)
        again(session, session_id + 1)

    assert seen == [Vanished()]


def test_a_topic_that_is_there_again_is_not_deleted_any_more() -> None:
    session = live()
    for session_id in range(1, DELETED_AFTER_ANSWERS + 1):
        session.refused(session_id, NOT_FOUND)
        again(session, session_id + 1)

    session.updated(DELETED_AFTER_ANSWERS + 1, FIRST)

    assert not session.is_vanished


def test_closing_twice_is_harmless_and_a_start_that_is_not_over_fails() -> None:
    session, starting = live(), asking()

    assert session.close() == (CloseSession(1),)
    assert session.close() == ()
    closed, failed = starting.close()
    assert closed == CloseSession(1)
    assert isinstance(failed, StartFailed)
    assert isinstance(failed.error, AlreadyClosed)
    assert WatchSession(TOPIC, create_if_missing=True).close() == ()


OTHER_INPUTS = (
    lambda session, session_id: session.updated(session_id, FIRST),
    lambda session, session_id: session.updated(session_id, SECOND),
    lambda session, session_id: session.refused(session_id, NOT_FOUND),
    lambda session, session_id: session.refused(session_id, MalformedLayout("x")),
    lambda session, session_id: session.connection_lost(session_id),
    lambda session, session_id: session.timed_out(session_id),
    lambda session, session_id: session.close(),
)


@given(st.lists(st.integers(0, 9), max_size=40))
def test_any_sequence_of_inputs_leaves_at_most_one_attempt_under_way(inputs: list[int]) -> None:
    session = WatchSession(TOPIC, create_if_missing=True)
    open_attempts, starts, pauses = len(session.start()), 0, 0
    session_id = 0
    for number in inputs:
        effects: tuple[Effect, ...]
        if number == 0:
            session_id += 1
            effects = session.connected(session_id, has_scalable_topics=True)
            open_attempts -= bool(effects)
        elif number == 1:
            effects = session.connect_failed(ConnectionFailed("x"))
            open_attempts -= bool(effects)
        elif number == 2:
            effects = session.paused()
            pauses -= bool(effects)
        else:
            effects = OTHER_INPUTS[number - 3](session, session_id)
        open_attempts += sum(isinstance(each, Connect) for each in effects)
        pauses += sum(isinstance(each, Pause) for each in effects)
        starts += sum(isinstance(each, Started | StartFailed) for each in effects)
        assert starts <= 1
        if session.status is not WatchStatus.CLOSED:
            assert 0 <= open_attempts + pauses <= 1
