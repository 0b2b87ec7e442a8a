"""The steps from one configuration to another: small, safe, and the same for every leader."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.domain.membership_plan import (
    AddLearner,
    Done,
    HandOver,
    Progress,
    Promote,
    Remove,
    Situation,
    Step,
    Wait,
    Wish,
    next_step,
)

THREE = ("a", "b", "c")
NODES = ("a", "b", "c", "d", "e")


def situation(
    voters: tuple[str, ...] = THREE,
    learners: tuple[str, ...] = (),
    *,
    own_id: str = "a",
    away: str = "",
    match: dict[str, int] | None = None,
    gets_snapshot: str = "",
) -> Situation:
    others = [node for node in (*voters, *learners) if node != own_id]
    progress = {
        node: Progress(node not in away, (match or {}).get(node, 10), node in gets_snapshot)
        for node in others
    }
    return Situation(own_id, voters, learners, progress)


def test_nothing_is_to_do_where_the_log_has_what_the_map_wants() -> None:
    assert next_step(Wish(THREE), situation()) == Done()
    # Also when the map does not know of it yet.
    assert next_step(Wish(("a", "b"), joining=("c",)), situation()) == Done()


def test_a_node_comes_in_as_a_learner_first_and_votes_when_it_has_caught_up() -> None:
    wish = Wish(THREE, joining=("d",))

    assert next_step(wish, situation()) == AddLearner("d")
    assert next_step(wish, situation(learners=("d",))) == Promote("d")
    assert next_step(wish, situation((*THREE, "d"))) == Done()


def test_a_learner_that_gets_a_snapshot_is_waited_for() -> None:
    step = next_step(Wish(THREE, joining=("d",)), situation(learners=("d",), gets_snapshot="d"))

    assert step == Wait("d catches up")


def test_a_learner_that_has_not_acknowledged_that_it_is_one_is_waited_for() -> None:
    """Its process is connected, but the group may not be open there."""
    learning = situation(learners=("d",), match={"d": 7})

    for made_at, step in ((7, Promote("d")), (8, Wait("d catches up"))):
        now = replace(learning, configuration_index=made_at)
        assert next_step(Wish(THREE, joining=("d",)), now) == step


def test_nodes_come_in_one_after_the_other() -> None:
    wish = Wish(THREE, joining=("d", "e"))

    assert next_step(wish, situation(learners=("d",), gets_snapshot="d")) == Wait("d catches up")
    assert next_step(wish, situation((*THREE, "d"))) == AddLearner("e")


def test_a_node_that_is_not_there_keeps_nobody_else_waiting() -> None:
    wish = Wish(THREE, joining=("d", "e"), leaving=("c",))

    assert next_step(wish, situation(learners=("d",), away="d")) == AddLearner("e")
    both_away = situation(learners=("d", "e"), away="de")
    assert next_step(wish, both_away) == Remove("c")
    without_c = situation(("a", "b"), ("d", "e"), away="de")
    assert next_step(wish, without_c) == Wait("d is not there")


def test_a_removal_waits_for_the_promotion_of_the_newcomer() -> None:
    wish = Wish(THREE, joining=("d",), leaving=("c",))

    assert next_step(wish, situation()) == AddLearner("d")
    assert next_step(wish, situation(learners=("d",), gets_snapshot="d")) == Wait("d catches up")
    assert next_step(wish, situation((*THREE, "d"))) == Remove("c")


def test_a_learner_whose_joining_was_cancelled_goes_first_of_all() -> None:
    wish = Wish(THREE, joining=("e",), leaving=("d",))

    assert next_step(wish, situation(learners=("d",))) == Remove("d")


def test_a_voter_that_no_placement_names_is_removed() -> None:
    assert next_step(Wish(("a", "b")), situation()) == Remove("c")


def test_a_leader_that_is_to_go_hands_over_to_the_one_that_is_furthest() -> None:
    wish = Wish(THREE, leaving=("a",))

    step = next_step(wish, situation(match={"b": 7, "c": 9}))

    assert step == HandOver("c")
    assert next_step(wish, situation(match={"b": 7, "c": 9}, away="c")) == HandOver("b")
    assert next_step(wish, situation(own_id="b")) == Remove("a")


def test_a_leader_that_is_to_go_removes_the_others_that_go_and_hands_over_to_none_of_them() -> None:
    five = situation(NODES, match={"b": 99})

    assert next_step(Wish(NODES, leaving=("a", "b")), five) == Remove("b")
    alone = situation(("a", "b"), away="b")
    assert next_step(Wish(("a", "b"), leaving=("a",)), alone) == Wait(
        "no other voter can lead in place of this node"
    )


@pytest.mark.parametrize(
    ("leaving", "away", "step"),
    [
        ("c", "c", Remove("c")),
        ("c", "b", Wait("without c too few voters would be alive")),
        ("c", "", Remove("c")),
        ("bc", "b", Remove("b")),  # The one that is dead is no loss.
    ],
)
def test_a_removal_never_leaves_less_than_a_living_majority(
    leaving: str, away: str, step: Step
) -> None:
    assert next_step(Wish(THREE, leaving=tuple(leaving)), situation(away=away)) == step


def test_a_promotion_never_leaves_less_than_a_living_majority() -> None:
    """Of two voters one is dead: with a third that is alive the group can go on."""
    wish = Wish(("a", "b"), joining=("d",))

    assert next_step(wish, situation(("a", "b"), ("d",), away="b")) == Promote("d")
    four = situation(("a", "b", "c", "e"), ("d",), away="bce")
    assert next_step(Wish(("a", "b", "c", "e"), joining=("d",)), four) == Wait("d catches up")


def _after(now: Situation, step: Step) -> Situation:
    voters, learners = set(now.voters), set(now.learners)
    match step:
        case AddLearner(node):
            learners.add(node)
        case Promote(node):
            assert node in learners
            learners.discard(node)
            voters.add(node)
        case Remove(node):
            voters.discard(node)
            learners.discard(node)
        case HandOver(target):
            known = {**now.progress, now.own_id: Progress(True, 10, False)}
            known.pop(target)
            return replace(now, own_id=target, progress=known)
        case _:
            return now
    known = {
        node: now.progress.get(node, Progress(True, 10, False))
        for node in voters | learners
        if node != now.own_id
    }
    return Situation(now.own_id, tuple(sorted(voters)), tuple(sorted(learners)), known)


subsets = st.sets(st.sampled_from(NODES), min_size=1)


@given(voters=subsets, learners=subsets, wanted=subsets, data=st.data())
@settings(max_examples=300)
def test_from_any_configuration_the_steps_lead_to_the_wish(
    voters: set[str], learners: set[str], wanted: set[str], data: st.DataObject
) -> None:
    """All nodes are up: at most one voter differs per step, and the last step is the wanted set."""
    own_id = data.draw(st.sampled_from(sorted(voters)))
    now = situation(tuple(sorted(voters)), tuple(sorted(learners - voters)), own_id=own_id)
    joining = tuple(sorted(wanted - voters))
    wish = Wish(tuple(sorted(voters)), joining, tuple(sorted(voters - wanted)))

    for _ in range(4 * len(NODES)):
        step = next_step(wish, now)
        if step == Done():
            break
        after = _after(now, step)
        assert after != now
        assert len(set(after.voters) ^ set(now.voters)) <= 1
        assert after.own_id in after.voters
        now = after

    assert step == Done()
    assert set(now.voters) == wanted
    assert not now.learners


@given(
    voters=subsets,
    learners=subsets,
    wanted=subsets,
    away=st.sets(st.sampled_from(NODES)),
    data=st.data(),
)
@settings(max_examples=300)
def test_no_step_takes_the_living_majority_away(
    voters: set[str], learners: set[str], wanted: set[str], away: set[str], data: st.DataObject
) -> None:
    own_id = data.draw(st.sampled_from(sorted(voters)))
    now = situation(
        tuple(sorted(voters)),
        tuple(sorted(learners - voters)),
        own_id=own_id,
        away="".join(away - {own_id}),
    )
    wish = Wish(tuple(sorted(voters)), tuple(sorted(wanted - voters)), tuple(voters - wanted))

    step = next_step(wish, now)

    if isinstance(step, Promote | Remove) and set(_after(now, step).voters) != voters:
        after = _after(now, step)
        alive = [node for node in after.voters if now.is_alive(node)]
        assert 2 * len(alive) > len(after.voters)
    if isinstance(step, HandOver):
        assert step.target in wanted & voters - away
