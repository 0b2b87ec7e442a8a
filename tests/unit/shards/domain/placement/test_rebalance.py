"""The fewest moves that spread units evenly, and none for what is only noise."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import permutations

from hypothesis import example, given
from hypothesis import strategies as st

from shards.domain.placement.rebalance import (
    GOAL_PERMILLE,
    LOOKS_PER_PAIR_MAX,
    START_PERMILLE,
    TRAFFIC_UNITS_MAX,
    UNIT_WEIGHT,
    Burden,
    Movable,
    Move,
    Plan,
    needs_rebalance,
    plan,
    smoothed,
    weight_of,
)

NO_END = 1_000_000


def anywhere(_name: str, _broker_id: str) -> bool:
    return True


def burden(broker_id: str, units: int, *, capacity: int = 100, room: int = NO_END) -> Burden:
    movable = tuple(Movable(f"{broker_id}/{number:05}") for number in range(units))
    return Burden(broker_id, capacity, units * UNIT_WEIGHT, movable, room)


def weighed(broker_id: str, weights: Sequence[int]) -> Burden:
    movable = tuple(Movable(f"{broker_id}/{place}", each) for place, each in enumerate(weights))
    return Burden(broker_id, 100, sum(weights), movable)


def units_after(found: Plan) -> dict[str, int]:
    return {broker_id: weight // UNIT_WEIGHT for broker_id, weight in found.after.items()}


def shares_of(burdens: Sequence[Burden]) -> dict[str, int]:
    total = sum(each.weight for each in burdens)
    capacity = sum(each.capacity_units for each in burdens)
    return {each.broker_id: total * each.capacity_units // capacity for each in burdens}


def distance(weights: Mapping[str, int], shares: Mapping[str, int]) -> int:
    return sum((weights[broker_id] - share) ** 2 for broker_id, share in shares.items())


equal_clusters = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 4)), min_size=1, max_size=6
).map(
    lambda brokers: [
        burden(f"b-{place}", units, capacity=25 * parts)
        for place, (units, parts) in enumerate(brokers)
    ]
)
weighed_clusters = st.lists(
    st.lists(st.integers(UNIT_WEIGHT, 8 * UNIT_WEIGHT), max_size=20), min_size=1, max_size=5
).map(lambda brokers: [weighed(f"b-{place}", each) for place, each in enumerate(brokers)])


def test_a_broker_that_came_later_gets_its_share_and_nothing_else_moves() -> None:
    burdens = [burden("a", 60), burden("b", 60), burden("c", 0)]

    found = plan(burdens, anywhere, moves_max=NO_END)

    assert units_after(found) == {"a": 41, "b": 41, "c": 38}, "within 5 % of 40"
    assert {move.to_broker_id for move in found.moves} == {"c"}
    assert len(found.moves) == 38
    assert found.is_met


def test_shares_are_by_capacity() -> None:
    burdens = [burden("small", 50, capacity=100), burden("large", 50, capacity=300)]

    found = plan(burdens, anywhere, moves_max=NO_END)

    assert units_after(found) == {"small": 26, "large": 74}


def test_it_begins_beyond_a_tenth_and_goes_on_to_a_twentieth() -> None:
    assert not needs_rebalance([burden("a", 110), burden("b", 90)])
    assert needs_rebalance([burden("a", 111), burden("b", 89)])

    found = plan([burden("a", 111), burden("b", 89)], anywhere, moves_max=NO_END)

    assert units_after(found) == {"a": 105, "b": 95}


def test_a_share_that_is_no_whole_number_of_units_is_met_as_near_as_can_be() -> None:
    assert not needs_rebalance([burden("a", 1), burden("b", 0), burden("c", 1)])

    assert plan([burden("a", 3), burden("b", 0)], anywhere, moves_max=NO_END).is_met


def test_units_that_rules_keep_stay_and_the_plan_says_that_it_is_not_met() -> None:
    def not_to_b(_name: str, broker_id: str) -> bool:
        return broker_id != "b"

    found = plan([burden("a", 20), burden("b", 0), burden("c", 0)], not_to_b, moves_max=NO_END)

    assert {move.to_broker_id for move in found.moves} == {"c"}
    assert not found.is_met


def test_a_broker_gets_no_more_than_it_has_room_for() -> None:
    found = plan([burden("a", 40), burden("b", 0, room=3)], anywhere, moves_max=NO_END)

    assert len(found.moves) == 3
    assert not found.is_met


def test_a_plan_ends_at_its_bound() -> None:
    burdens = [burden("a", 100), burden("b", 0)]
    needed = len(plan(burdens, anywhere, moves_max=NO_END).moves)

    assert plan(burdens, anywhere, moves_max=needed).is_met
    cut = plan(burdens, anywhere, moves_max=needed - 1)
    assert (len(cut.moves), cut.is_met) == (needed - 1, False)


def test_of_many_forbidden_units_so_many_are_looked_at_and_no_more() -> None:
    units = LOOKS_PER_PAIR_MAX + 1
    looked: list[str] = []

    def only_the_last(name: str, _broker_id: str) -> bool:
        looked.append(name)
        return len(looked) == units

    found = plan([burden("a", units), burden("b", 0)], only_the_last, moves_max=1)

    assert found.moves == ()
    assert len(looked) == LOOKS_PER_PAIR_MAX


def test_the_busy_unit_moves_rather_than_many_idle_ones() -> None:
    hot = weighed("a", [UNIT_WEIGHT] * 10 + [8 * UNIT_WEIGHT] * 2)
    cold = weighed("b", [UNIT_WEIGHT] * 10)

    found = plan([hot, cold], anywhere, moves_max=NO_END)

    assert len(found.moves) == 1
    assert found.after == {"a": 18_000, "b": 18_000}


@given(equal_clusters)
def test_equal_units_end_within_the_goal_with_the_fewest_moves_there_can_be(
    burdens: list[Burden],
) -> None:
    """Each unit above the highest weight allowed must go, each below the lowest must come."""
    shares = shares_of(burdens)
    too_many = too_few = 0
    for each in burdens:
        units, share = len(each.movable), shares[each.broker_id]
        slack = max(share * GOAL_PERMILLE // 1000, UNIT_WEIGHT - 1)
        too_many += max(0, units - (share + slack) // UNIT_WEIGHT)
        too_few += max(0, -(-(share - slack) // UNIT_WEIGHT) - units)

    found = plan(burdens, anywhere, moves_max=NO_END)

    assert found.is_met
    assert len(found.moves) == max(too_many, too_few)


@given(weighed_clusters)
def test_every_move_brings_the_brokers_nearer_to_their_shares(burdens: list[Burden]) -> None:
    shares = shares_of(burdens)
    weights = {each.broker_id: each.weight for each in burdens}
    unit_weights = {unit.name: unit.weight for each in burdens for unit in each.movable}

    found = plan(burdens, anywhere, moves_max=NO_END)

    for move in found.moves:
        before = distance(weights, shares)
        weights[move.from_broker_id] -= unit_weights[move.name]
        weights[move.to_broker_id] += unit_weights[move.name]
        assert distance(weights, shares) < before
    assert weights == found.after
    assert max(Counter(move.name for move in found.moves).values(), default=1) == 1


@given(equal_clusters)
def test_what_a_plan_of_equal_units_leaves_needs_no_other_plan(burdens: list[Burden]) -> None:
    found = plan(burdens, anywhere, moves_max=NO_END)

    assert plan(_moved(burdens, found.moves), anywhere, moves_max=NO_END).moves == ()


# A plan moves no unit twice, so with units that weigh much another one may find more to do.
@given(weighed_clusters)
@example([weighed("b-0", []), weighed("b-1", [1000, 1000, 3002]), weighed("b-2", [2000, 2001])])
def test_plans_on_what_plans_left_come_to_an_end_and_a_met_one_is_the_last(
    burdens: list[Burden],
) -> None:
    shares = shares_of(burdens)
    left = distance({each.broker_id: each.weight for each in burdens}, shares)

    found = plan(burdens, anywhere, moves_max=NO_END)
    while found.moves:
        assert distance(found.after, shares) < left, "it ends: each is nearer than the one before"
        left = distance(found.after, shares)
        burdens, was_met = _moved(burdens, found.moves), found.is_met
        found = plan(burdens, anywhere, moves_max=NO_END)
        assert not (was_met and found.moves)


@given(weighed_clusters, st.randoms(use_true_random=False))
def test_the_same_brokers_give_the_same_plan_in_whatever_order_they_come(
    burdens: list[Burden], random_order: random.Random
) -> None:
    shuffled = list(burdens)
    random_order.shuffle(shuffled)

    assert (
        plan(shuffled, anywhere, moves_max=NO_END).moves
        == plan(burdens, anywhere, moves_max=NO_END).moves
    )


@given(
    weighed_clusters,
    st.dictionaries(st.tuples(st.integers(0, 4), st.integers(0, 19)), st.integers(0, 4)),
)
def test_no_unit_goes_where_the_rules_forbid_it(
    burdens: list[Burden], forbidden: dict[tuple[int, int], int]
) -> None:
    pairs = {(f"b-{broker}/{unit}", f"b-{target}") for (broker, unit), target in forbidden.items()}

    found = plan(burdens, lambda *pair: pair not in pairs, moves_max=NO_END)

    assert not {(move.name, move.to_broker_id) for move in found.moves} & pairs


def test_a_unit_weighs_by_its_part_of_the_traffic_and_never_too_much() -> None:
    assert weight_of(0, 100, 10) == UNIT_WEIGHT
    assert weight_of(5, 0, 10) == UNIT_WEIGHT
    assert weight_of(10, 100, 10) == UNIT_WEIGHT + UNIT_WEIGHT // 2, "an average unit"
    assert weight_of(100, 100, 41) == (1 + TRAFFIC_UNITS_MAX) * UNIT_WEIGHT
    assert weight_of(100, 100, 40) == (1 + TRAFFIC_UNITS_MAX) * UNIT_WEIGHT
    assert weight_of(100, 100, 39) < (1 + TRAFFIC_UNITS_MAX) * UNIT_WEIGHT


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_rate_that_is_reported_again_and_again_is_reached(known: int, reported: int) -> None:
    for _ in range(400):
        before, known = known, smoothed(known, reported)
        assert min(before, reported) <= known <= max(before, reported)

    assert known == reported


class NoisyCluster:
    """Brokers whose units have steady traffic, reported with noise, and a shedder over them."""

    def __init__(self, units: Mapping[str, int], busy_units: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.place = {
            f"{broker_id}-{number}": broker_id
            for broker_id, count in units.items()
            for number in range(count)
        }
        self.brokers = tuple(units)
        busy = set(list(self.place)[:busy_units])
        self.true_rates = {name: 9_000 if name in busy else 1_000 for name in self.place}
        self.known: dict[str, int] = {}
        self.moved: Counter[str] = Counter()
        self.is_under_way = False

    def round(self) -> int:
        """Take in a report of each broker, off by up to a fifth, plan and move; count moves."""
        noise = {broker_id: self.random.uniform(0.8, 1.2) for broker_id in self.brokers}
        for name, rate in self.true_rates.items():
            reported = int(rate * noise[self.place[name]])
            self.known[name] = smoothed(self.known.get(name, reported), reported)
        burdens = self.burdens()
        self.is_under_way = self.is_under_way or needs_rebalance(burdens)
        if not self.is_under_way:
            return 0
        found = plan(burdens, anywhere, moves_max=NO_END)
        self.is_under_way = False
        for move in found.moves:
            self.place[move.name] = move.to_broker_id
            self.moved[move.name] += 1
        return len(found.moves)

    def burdens(self) -> list[Burden]:
        total = sum(self.known.values())
        units: dict[str, list[Movable]] = {broker_id: [] for broker_id in self.brokers}
        for name, broker_id in self.place.items():
            weight = weight_of(self.known[name], total, len(self.place))
            units[broker_id].append(Movable(name, weight))
        return [
            Burden(broker_id, 100, sum(unit.weight for unit in movable), movable)
            for broker_id, movable in units.items()
        ]


def test_loads_that_are_off_by_a_fifth_move_nothing_in_a_thousand_rounds() -> None:
    cluster = NoisyCluster({"a": 40, "b": 40, "c": 40, "d": 40}, busy_units=0, seed=7)

    assert sum(cluster.round() for _ in range(1_000)) == 0


def test_an_uneven_cluster_settles_once_and_noise_never_moves_a_unit_back() -> None:
    """Broker a has all the traffic and most units. A thousand rounds of reports follow."""
    cluster = NoisyCluster({"a": 90, "b": 30, "c": 30, "d": 0}, busy_units=30, seed=11)

    settling = sum(cluster.round() for _ in range(30))
    later = sum(cluster.round() for _ in range(970))

    assert settling > 0
    assert later == 0
    assert set(cluster.moved.values()) == {1}, "no unit went twice"
    assert not needs_rebalance(cluster.burdens())


def test_every_order_of_starting_weights_ends_within_a_tenth_of_the_mean() -> None:
    for units in permutations((100, 0, 37, 63)):
        burdens = [burden(f"b-{place}", count) for place, count in enumerate(units)]
        after = units_after(plan(burdens, anywhere, moves_max=NO_END))
        assert max(after.values()) <= 50 * (1 + START_PERMILLE / 1000)
        assert min(after.values()) >= 50 * (1 - START_PERMILLE / 1000)


def _moved(burdens: Sequence[Burden], moves: Sequence[Move]) -> list[Burden]:
    units = {each.broker_id: {unit.name: unit for unit in each.movable} for each in burdens}
    for move in moves:
        unit = units[move.from_broker_id].pop(move.name)
        units[move.to_broker_id][move.name] = unit
    return [
        Burden(
            each.broker_id,
            each.capacity_units,
            sum(unit.weight for unit in units[each.broker_id].values()),
            tuple(units[each.broker_id].values()),
        )
        for each in burdens
    ]
