"""Legs of slots: where each part of a slot's history is, checked against a model of one slot."""

from hypothesis import given
from hypothesis import strategies as st

from nextgen.audit.slot_legs import SlotMove, homes_at, legs_of

SHARDS = (1, 2, 3)

Places = list[tuple[int, int]]
"""Shard and position of each event of a slot, in the order of the history."""


@st.composite
def told(draw: st.DrawFn) -> tuple[list[SlotMove], Places]:
    """Draw a history of slot 7: events, and moves between them."""
    ends = dict.fromkeys(SHARDS, 0)
    home, moves, places = 1, list[SlotMove](), list[tuple[int, int]]()
    for step in draw(st.lists(st.sampled_from(["event", "event", "other", "move"]), max_size=14)):
        if step == "event":
            ends[home] += 1
            places.append((home, ends[home]))
        elif step == "other":
            ends[draw(st.sampled_from(SHARDS))] += 1
        else:
            target = draw(st.sampled_from([each for each in SHARDS if each != home]))
            ends[home] += 1
            ends[target] += 1
            move = SlotMove(len(moves) + 1, ((5, 9),), home, ends[home], target, ends[target])
            moves.append(move)
            home = target
    return moves, places


@given(told())
def test_every_event_of_a_slot_is_in_one_leg_and_legs_follow_each_other(
    history: tuple[list[SlotMove], Places],
) -> None:
    moves, places = history
    legs = legs_of(reversed(moves))

    found = [legs.leg_at(7, shard, position) for shard, position in places]
    if moves:
        numbers = [leg.number for leg in found if leg is not None]
        assert len(numbers) == len(places)
        assert numbers == sorted(numbers)
    assert not legs.broken
    assert legs.slots == (frozenset(range(5, 10)) if moves else frozenset())


@given(told(), st.fixed_dictionaries({shard: st.integers(0, 16) for shard in SHARDS}))
def test_a_home_has_the_whole_history_up_to_its_own_position(
    history: tuple[list[SlotMove], Places], positions: dict[int, int]
) -> None:
    moves, places = history
    homes = homes_at(legs_of(moves).legs, positions)

    for home in {each.home for each in homes}:
        parts = [each for each in homes if each.home == home]
        counted = [
            place for place in places if any(_has(each.leg, each.up_to, place) for each in parts)
        ]
        assert counted == places[: len(counted)], "the history has no hole"
        is_reached = [place for place in counted if place[0] == home]
        assert all(position <= positions[home] for _, position in is_reached)
    if moves:
        assert homes, "some shard has the slots, or has released them last"


def test_a_move_that_does_not_go_on_where_the_slot_was_is_left_out() -> None:
    right = SlotMove(1, ((0, 3),), 1, 10, 2, 4)
    wrong = SlotMove(2, ((2, 5),), 3, 8, 1, 20)

    legs = legs_of([right, wrong])

    assert legs.broken == (wrong,)
    assert legs.leg_at(2, 2, 4) is not None
    assert legs.leg_at(5, 1, 20) is not None, "of slot 5 it is the first move"


def _has(leg: object, up_to: int, place: tuple[int, int]) -> bool:
    shard, first = leg.shard, leg.first_position  # type: ignore[attr-defined]
    return bool(shard == place[0] and first <= place[1] <= up_to)
