from __future__ import annotations

from dataclasses import dataclass

from brokers.domain.subscriptions.round_robin import RoundRobin


@dataclass(eq=False)
class Member:
    name: str
    priority_level: int = 0
    is_ready: bool = True


def drawn(turns: RoundRobin[Member], count: int) -> str:
    members = [turns.next() for _ in range(count)]
    return "".join("-" if member is None else member.name for member in members)


def test_everybody_has_a_turn_of_so_many() -> None:
    turns: RoundRobin[Member] = RoundRobin(turn_entries=2)
    turns.set_members([Member("a"), Member("b"), Member("c")])

    assert drawn(turns, 9) == "aabbccaab"


def test_a_member_that_is_not_ready_is_passed_over_and_keeps_its_place() -> None:
    turns: RoundRobin[Member] = RoundRobin(turn_entries=1)
    a, b = Member("a"), Member("b", is_ready=False)
    turns.set_members([a, b, Member("c")])

    assert drawn(turns, 3) == "aca"
    b.is_ready = True
    assert drawn(turns, 1) == "b"


def test_a_turn_ends_early_when_its_member_is_full() -> None:
    turns: RoundRobin[Member] = RoundRobin(turn_entries=10)
    a = Member("a")
    turns.set_members([a, Member("b")])
    assert drawn(turns, 2) == "aa"

    a.is_ready = False

    assert drawn(turns, 2) == "bb"


def test_a_lower_level_waits_for_the_higher() -> None:
    turns: RoundRobin[Member] = RoundRobin(turn_entries=1)
    first, second = Member("a"), Member("b")
    turns.set_members([Member("z", priority_level=2), first, second])
    assert drawn(turns, 3) == "aba"

    first.is_ready = second.is_ready = False

    assert drawn(turns, 2) == "zz"


def test_nobody_is_next_if_nobody_is_ready() -> None:
    turns: RoundRobin[Member] = RoundRobin()
    assert turns.next() is None
    turns.set_members([Member("a", is_ready=False)])

    assert turns.next() is None
