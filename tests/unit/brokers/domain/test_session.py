"""The rules of a broker's session: dense sequence, resume, void."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.holding import (
    Assignment,
    NamespaceMetadata,
    Payload,
    Release,
    TenantMetadata,
    TopicMetadata,
)
from brokers.domain.session import (
    Began,
    BrokerSession,
    Changed,
    Delivered,
    Delivery,
    Disconnected,
    Established,
    Expired,
    Input,
    Reconnect,
    ReportSync,
    Status,
    Voided,
)

NAMESPACE = "acme/orders"


def tenant() -> TenantMetadata:
    return TenantMetadata("t-1", "acme", {}, 1)


def namespace() -> NamespaceMetadata:
    return NamespaceMetadata("n-1", NAMESPACE, {}, 1)


def assignment(number: int, epoch: int = 1) -> Assignment:
    name = f"persistent://{NAMESPACE}/topic-{number}"
    return Assignment(TopicMetadata(f"id-{number}", name, 0, {}, 1), "", name, epoch, 1)


def release(number: int, epoch: int = 1, new_epoch: int = 2) -> Release:
    name = f"persistent://{NAMESPACE}/topic-{number}"
    return Release(f"id-{number}", "", name, epoch, "broker-2", new_epoch, "127.0.0.1:1", "")


def delivered(first: int, *payloads: Payload, now_ms: int = 0) -> Delivered:
    return Delivered(
        [Delivery(first + offset, payload) for offset, payload in enumerate(payloads)], now_ms
    )


def established(
    session_id: str = "s-1", *, epoch: int = 1, resumed: bool = False, next_sequence: int = 1
) -> Established:
    return Established(session_id, epoch, resumed, next_sequence)


def connected_session(*inputs: Input) -> BrokerSession:
    session = BrokerSession()
    session.step(established())
    for one in inputs:
        session.step(one)
    return session


def test_a_batch_is_applied_in_order_and_its_last_number_is_reported():
    session = connected_session()

    effects = session.step(delivered(1, tenant(), namespace(), assignment(1)))

    assert effects == (Changed((assignment(1),)), ReportSync(3))
    assert session.holding.assigned(assignment(1).name) == assignment(1)
    assert session.holding.has_metadata(assignment(1))


def test_a_repeated_batch_changes_nothing_and_is_reported_again():
    session = connected_session(delivered(1, assignment(1), release(1)))

    effects = session.step(delivered(1, assignment(1), release(1)))

    assert effects == (ReportSync(2),)
    assert session.holding.assigned(assignment(1).name) is None


def test_a_part_of_what_was_applied_that_comes_again_takes_nothing_back():
    session = connected_session(delivered(1, tenant(), namespace(), assignment(1)))

    effects = session.step(delivered(1, tenant(), namespace()))

    assert effects == (ReportSync(3),)
    assert session.resume_point == ("s-1", 3)
    assert session.step(delivered(4, assignment(2))) == (Changed((assignment(2),)), ReportSync(4))


def test_nothing_behind_a_gap_is_applied_and_the_session_resumes_before_it():
    session = connected_session(delivered(1, tenant()))

    effects = session.step(delivered(3, assignment(1)))

    assert effects == (ReportSync(1), Reconnect("sequence 3 arrived, 2 was next"))
    assert session.resume_point == ("s-1", 1)
    assert session.holding.assigned(assignment(1).name) is None
    assert session.step(delivered(2, assignment(2))) == ()


def test_the_same_gap_after_a_resume_gives_the_session_up():
    session = connected_session(delivered(1, tenant()), delivered(3, assignment(1)))
    session.step(established(resumed=True, next_sequence=2))

    effects = session.step(delivered(3, assignment(1)))

    assert effects[0] == Voided(0)
    assert isinstance(effects[1], Reconnect)
    assert session.resume_point == ("", 0)


def test_progress_between_two_gaps_keeps_the_session():
    session = connected_session(delivered(1, tenant()), delivered(3, assignment(1)))
    session.step(established(resumed=True, next_sequence=2))
    session.step(delivered(2, namespace()))

    session.step(delivered(9, assignment(1)))

    assert session.resume_point == ("s-1", 2)


def test_a_resumed_session_keeps_what_it_holds_and_reports_where_it_is():
    session = connected_session(delivered(1, assignment(1)), Disconnected())

    effects = session.step(established(resumed=True, next_sequence=2))

    assert effects == (ReportSync(1),)
    assert session.holding.assigned(assignment(1).name) == assignment(1)


def test_a_session_that_is_not_resumed_voids_everything():
    session = connected_session(delivered(1, tenant(), assignment(1), release(2)), Disconnected())

    effects = session.step(established("s-2", epoch=2, next_sequence=5))

    assert effects == (Voided(1), Began())
    assert session.resume_point == ("s-2", 4)
    assert session.holding.assigned(assignment(1).name) is None
    assert (session.holding.tenants, session.holding.tombstones) == ({}, 0)


def test_a_resume_beyond_what_is_applied_gives_the_session_up():
    session = connected_session(delivered(1, assignment(1)), Disconnected())

    effects = session.step(established(resumed=True, next_sequence=3))

    assert effects[0] == Voided(1)
    assert session.status is Status.UNREGISTERED


def test_a_broken_connection_voids_nothing():
    session = connected_session(delivered(1, assignment(1)))

    assert session.step(Disconnected()) == ()

    assert session.holding.assigned(assignment(1).name) == assignment(1)


def test_an_expired_session_voids_everything_and_connects_anew():
    session = connected_session(delivered(1, assignment(1)))

    effects = session.step(Expired())

    assert effects == (Voided(1), Reconnect("the broker manager ended the session"))
    assert session.resume_point == ("", 0)


payloads = st.one_of(
    st.builds(tenant),
    st.builds(namespace),
    st.builds(assignment, st.integers(1, 3), st.integers(1, 5)),
    st.builds(release, st.integers(1, 3), st.integers(1, 5), st.integers(0, 6)),
)
inputs = st.one_of(
    st.builds(
        lambda first, given: delivered(first, *given),
        st.integers(1, 8),
        st.lists(payloads, max_size=4),
    ),
    st.builds(
        established,
        st.sampled_from(["s-1", "s-2"]),
        resumed=st.booleans(),
        next_sequence=st.integers(1, 8),
    ),
    st.just(Disconnected()),
    st.just(Expired()),
)


@given(st.lists(inputs, max_size=20))
def test_no_order_of_inputs_breaks_the_machine_or_reports_more_than_was_applied(history):
    session = BrokerSession()
    for one in history:
        effects = session.step(one)

        for effect in effects:
            if isinstance(effect, ReportSync):
                assert effect.sequence == session.applied_sequence
        assert (session.status is Status.UNREGISTERED) == (session.session_id == "")


@given(
    st.lists(payloads, max_size=20),
    st.lists(st.integers(0, 20), max_size=8),
    st.lists(st.integers(0, 20), max_size=4),
)
def test_cut_anywhere_repeated_and_resumed_the_sequence_has_the_same_result(sequence, cuts, breaks):
    """Batches of any size, with overlaps and reconnects, end where one batch would have ended."""
    at_once = connected_session(delivered(1, *sequence))
    piecewise = connected_session()

    for cut in [*sorted(cuts), len(sequence)]:
        # Each piece starts one before what is applied: a repeat at every seam.
        first = max(1, piecewise.applied_sequence)
        piecewise.step(delivered(first, *sequence[first - 1 : cut]))
        if cut in breaks:
            piecewise.step(Disconnected())
            piecewise.step(established(resumed=True, next_sequence=piecewise.applied_sequence + 1))

    assert piecewise.resume_point == at_once.resume_point
    assert piecewise.holding.assignments == at_once.holding.assignments
    for number in (1, 2, 3):
        name = assignment(number).name
        assert piecewise.holding.assigned(name) == at_once.holding.assigned(name)
        assert piecewise.holding.released(name, 0) == at_once.holding.released(name, 0)
