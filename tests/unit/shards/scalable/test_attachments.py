"""Which node has which consumer, as nodes come, go and speak late."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.errors import Overloaded
from shards.scalable.attachments import Attachments, Member, NodeId

SILENCE_S, GRACE_S = 15.0, 60.0
ALL = 1_000
A, B = NodeId("node-a", "1"), NodeId("node-b", "1")
C1, C2 = (Member("topic://t/n/x", "s", name) for name in ("c1", "c2"))


def table(term: int = 3, members_max: int = 10) -> Attachments:
    return Attachments(term, silence_s=SILENCE_S, grace_s=GRACE_S, members_max=members_max)


def due_at(attachments: Attachments, now: float) -> list[Member]:
    while attachments.sweep(now, ALL):
        pass
    return attachments.take_due(now, ALL)


def test_an_attached_consumer_stays_as_long_as_its_node_renews() -> None:
    attachments = table()
    first = attachments.attach(A, [(C1, 0), (C2, 0)], 0.0)

    for now in range(5, 600, 5):
        assert due_at(attachments, float(now)) == []
        assert attachments.attach(A, [], float(now)).is_known

    assert not first.is_known
    assert first.attachments == ((3 << 32) + 1, (3 << 32) + 2)
    assert (len(attachments), attachments.in_grace) == (2, 0)


def test_a_silent_node_puts_its_consumers_into_grace() -> None:
    attachments = table()
    attachments.attach(A, [(C1, 0)], 0.0)
    attachments.attach(B, [(C2, 0)], 10.0)

    assert attachments.next_at == SILENCE_S
    assert due_at(attachments, SILENCE_S - 0.1) == []
    assert (len(attachments), attachments.in_grace) == (2, 0)
    assert due_at(attachments, SILENCE_S) == []
    assert (len(attachments), attachments.in_grace) == (1, 1)
    attachments.attach(B, [], 20.0)
    assert due_at(attachments, SILENCE_S + GRACE_S - 0.1) == [], "and node b is silent, too"
    assert due_at(attachments, SILENCE_S + GRACE_S) == [C1]
    assert not attachments.is_claimed(C1)
    assert attachments.is_claimed(C2)


def test_a_consumer_that_is_attached_again_has_no_grace() -> None:
    attachments = table()
    (number,) = attachments.attach(A, [(C1, 0)], 0.0).attachments
    attachments.detach(A, [(C1, number)], 1.0)
    assert (len(attachments), attachments.in_grace) == (0, 1)

    attachments.attach(B, [(C1, 0)], 50.0)

    assert (len(attachments), attachments.in_grace) == (1, 0)


def test_the_latest_attachment_holds_and_the_former_node_learns_of_it() -> None:
    """1. A client is connected at ``a``. 2. It comes back by ``b``. 3. ``a`` notices that the old
    connection is broken, and says so: nothing follows."""
    attachments = table()
    (old,) = attachments.attach(A, [(C1, 0)], 0.0).attachments
    (new,) = attachments.attach(B, [(C1, 0)], 1.0).attachments

    assert new > old
    assert attachments.attach(A, [], 2.0).ended == ((C1, old),)
    assert attachments.attach(A, [], 3.0).ended == ((C1, old),), "its answer may have been lost"
    attachments.detach(A, [(C1, old)], 4.0)
    assert attachments.attach(A, [], 5.0).ended == ()
    assert (len(attachments), attachments.in_grace) == (1, 0)


def test_an_attachment_that_was_replaced_does_not_come_back_when_the_later_one_ends() -> None:
    attachments = table()
    (old,) = attachments.attach(A, [(C1, 0)], 0.0).attachments
    (new,) = attachments.attach(B, [(C1, 0)], 1.0).attachments
    attachments.detach(B, [(C1, new)], 2.0, has_grace=False)

    assert attachments.attach(A, [(C1, old)], 3.0).attachments == (0,)

    assert not attachments.is_claimed(C1)


@pytest.mark.parametrize("order", [(A, B), (B, A)])
def test_a_new_leader_believes_the_later_of_two_attachments(order: tuple[NodeId, NodeId]) -> None:
    earlier = table(term=3)
    numbers = {
        A: earlier.attach(A, [(C1, 0)], 0.0).attachments[0],
        B: earlier.attach(B, [(C1, 0)], 1.0).attachments[0],
    }
    attachments = table(term=4)

    given_numbers = {
        node: attachments.attach(node, [(C1, numbers[node])], 2.0).attachments[0] for node in order
    }

    assert given_numbers[B] == numbers[B]
    if order == (B, A):
        assert given_numbers[A] == 0
    else:
        assert attachments.attach(A, [], 3.0).ended == ((C1, numbers[A]),)
    assert attachments.attach(A, [(C2, 0)], 4.0).attachments[0] > numbers[B]


@pytest.mark.parametrize("order", [(A, B), (B, A)])
def test_a_shard_to_which_a_topic_came_believes_the_later_of_two_attachments(
    order: tuple[NodeId, NodeId],
) -> None:
    """The shard before may have had more terms, so its numbers say nothing here but whose is the
    later one."""
    attachments = table(term=3)
    before = {A: (9 << 32) + 1, B: (9 << 32) + 2}

    answers = {
        node: attachments.attach(node, [(C1, 0)], 2.0, {C1: before[node]}).attachments[0]
        for node in order
    }

    assert answers[B] >> 32 == 3
    if order == (B, A):
        assert answers[A] == 0
    else:
        assert attachments.attach(A, [], 3.0).ended == ((C1, answers[A]),)
    repeated = attachments.attach(B, [(C1, answers[B])], 4.0, {C1: before[B]})
    assert repeated.attachments == (answers[B],)


def test_a_client_that_came_back_at_the_new_shard_outlives_what_was_attached_before() -> None:
    attachments = table()
    (number,) = attachments.attach(B, [(C1, 0)], 0.0).attachments

    late = attachments.attach(A, [(C1, 0)], 1.0, {C1: (9 << 32) + 1})

    assert late.attachments == (0,)
    assert attachments.attach(B, [(C1, number)], 2.0).attachments == (number,)


def test_what_was_said_of_topics_that_come_again_is_forgotten_and_asked_for() -> None:
    """1. ``c1`` is attached, its topic goes to another shard, its connection ends, and the topic
    comes back. 2. ``c2`` is of a topic that was here all the time."""
    attachments = table()
    other = Member("topic://t/n/stays", "s", "c2")
    attachments.attach(A, [(C1, 0), (C2, 0), (other, 0)], 0.0)
    (replaced,) = attachments.attach(B, [(C2, 0)], 1.0).attachments
    attachments.detach(B, [(C2, replaced)], 1.0)
    assert attachments.attach(B, [], 2.0).is_known

    attachments.forget(lambda topic: topic == C1.topic)

    assert [attachments.is_claimed(each) for each in (C1, C2, other)] == [False, False, True]
    again = attachments.attach(A, [], 3.0)
    assert not again.is_known
    assert again.ended == ()
    assert attachments.attach(A, [(C1, 0)], 4.0).is_known
    assert attachments.attach(B, [], 4.0).is_known, "it had none of them attached"


def test_another_process_of_a_node_has_none_of_its_consumers() -> None:
    attachments = table()
    attachments.attach(A, [(C1, 0), (C2, 0)], 0.0)

    restarted = attachments.attach(NodeId("node-a", "2"), [(C2, 0)], 1.0)

    assert not restarted.is_known
    assert due_at(attachments, 1.0) == []
    assert (len(attachments), attachments.in_grace) == (1, 1)
    attachments.attach(NodeId("node-a", "2"), [], 60.0)
    assert due_at(attachments, 1.0 + GRACE_S) == [C1]


def test_a_node_that_was_silent_is_not_known_and_brings_its_consumers_again() -> None:
    attachments = table()
    (number,) = attachments.attach(A, [(C1, 0)], 0.0).attachments
    assert due_at(attachments, 20.0) == []

    assert not attachments.attach(A, [], 21.0).is_known
    assert attachments.attach(A, [(C1, number)], 22.0).attachments == (number,)
    assert (len(attachments), attachments.in_grace) == (1, 0)


def test_one_that_has_left_has_no_grace() -> None:
    attachments = table()
    (number,) = attachments.attach(A, [(C1, 0)], 0.0).attachments

    attachments.detach(A, [(C1, number)], 1.0, has_grace=False)

    assert not attachments.is_claimed(C1)


def test_a_strangers_detachment_changes_nothing() -> None:
    attachments = table()
    (number,) = attachments.attach(A, [(C1, 0)], 0.0).attachments

    attachments.detach(B, [(C1, number)], 1.0)
    attachments.detach(NodeId("node-a", "2"), [(C1, number)], 1.0)
    attachments.detach(A, [(C1, number + 1), (C2, number)], 1.0)

    assert (len(attachments), attachments.in_grace) == (1, 0)


def test_so_many_members_are_attached_and_one_more_is_refused() -> None:
    attachments = table(members_max=2)
    attachments.attach(A, [(C1, 0), (C2, 0)], 0.0)

    attachments.attach(B, [(C1, 0)], 1.0)
    with pytest.raises(Overloaded, match="at most 2 may be"):
        attachments.attach(B, [(C1, 0), (Member("topic://t/n/x", "s", "c3"), 0)], 2.0)

    assert len(attachments) == 2


def test_members_of_a_lost_node_go_in_slices() -> None:
    attachments = table()
    members = [Member("topic://t/n/x", "s", f"c{number}") for number in range(5)]
    attachments.attach(A, [(each, 0) for each in members], 0.0)

    assert [attachments.sweep(20.0, 2) for _ in range(3)] == [True, True, False]
    assert attachments.in_grace == 5
    assert attachments.next_at == 20.0 + GRACE_S
    assert attachments.take_due(100.0, 3) == members[:3]
    assert attachments.take_due(100.0, 3) == members[3:]
    assert attachments.next_at is None


_NODES = st.sampled_from([A, B, NodeId("node-a", "2")])
_STEPS = st.tuples(
    st.sampled_from(["attach", "again", "detach", "renew", "time"]),
    _NODES,
    st.sampled_from([C1, C2]),
    st.floats(0, 40),
)


@given(st.lists(_STEPS, max_size=40))
def test_in_any_history_a_consumer_is_due_only_after_its_grace(
    steps: list[tuple[str, NodeId, Member, float]],
) -> None:
    """Every consumer that was ever attached is attached, in grace, or was due; and due only if no
    node has held it within the grace."""
    attachments = table()
    numbers: dict[tuple[NodeId, Member], int] = {}
    claimed: set[Member] = set()
    attached_at: dict[Member, float] = {}
    now = 0.0
    for what, node, member, passed in steps:
        if what in ("attach", "again"):
            number = numbers.get((node, member), 0) if what == "again" else 0
            (got,) = attachments.attach(node, [(member, number)], now).attachments
            if got:
                numbers[(node, member)] = got
                attached_at[member] = now
                claimed.add(member)
        elif what == "detach":
            attachments.detach(node, [(member, numbers.get((node, member), 1))], now)
        elif what == "renew":
            attachments.attach(node, [], now)
        else:
            now += passed
            for due in due_at(attachments, now):
                assert now - attached_at[due] >= GRACE_S
                claimed.discard(due)
        assert {each for each in (C1, C2) if attachments.is_claimed(each)} == claimed
