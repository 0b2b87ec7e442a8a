"""Who gets a unit: rules first, then room, then the better of two."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.policies import NO_RULES, AntiAffinity, PlacementRules
from nextgen.kernel.limits.placement import (
    COMPARED_MAX,
    EQUAL_USE_PERMILLE,
    LOAD_DIFFERENCE_PERMILLE,
    SPREAD_COST_PERMILLE,
)
from shards.domain.placement.choice import (
    CandidateSeen,
    Choice,
    PlacementDecision,
    even_parts,
    place,
    place_at,
)
from shards.domain.placement.rebalance import (
    START_PERMILLE,
    UNIT_WEIGHT,
    Burden,
    is_within,
    shares_of,
)
from shards.domain.placement.rules import NO_PEERS, Candidate, Peers, forbids
from tests.support.shards.placement_strategies import BROKERS, RACKS, ZONES, placement_rules

Draw = tuple[int, int]
draws = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
ALL_DRAWS = [(first, second) for first in range(6) for second in range(6)]


def broker(name: str, used: int, leased: int, **more: object) -> Candidate:
    return replace(Candidate(name, f"s-{name}", used, leased), **more)


def chosen(brokers: list[Candidate], rules: PlacementRules = NO_RULES, **how: object) -> set[str]:
    """Return who can be chosen, whatever is drawn."""
    choices = [place(brokers, rules, draw, **how) for draw in ALL_DRAWS]  # type: ignore[arg-type]
    return {
        brokers[choice.place].broker_id if isinstance(choice, Choice) else choice.code.value
        for choice in choices
    }


def rule_of(brokers: list[Candidate], rules: PlacementRules = NO_RULES, **how: object) -> str:
    choice = place(brokers, rules, (0, 0), **how)  # type: ignore[arg-type]
    assert isinstance(choice, Choice)
    return choice.decision.rule


def test_nobody_is_chosen_from_nobody() -> None:
    refused = place([], NO_RULES, (1, 2))

    assert refused == Rejected(RejectionCode.NO_BROKER, "no broker is alive")


def test_of_two_the_emptier_by_capacity_wins_whoever_is_drawn_first() -> None:
    brokers = [
        broker("half", 50, 100, capacity_units=100),
        broker("third", 4, 5, capacity_units=12),
    ]

    assert chosen(brokers) == {"third"}


def test_without_a_capacity_the_lease_stands_for_it() -> None:
    assert chosen([broker("half", 50, 100), broker("third", 4, 12)]) == {"third"}


def test_a_larger_lease_does_not_make_a_broker_emptier() -> None:
    brokers = [
        broker("a", 60, 1_000, capacity_units=1_000),
        broker("b", 50, 100, capacity_units=1_000),
    ]

    assert chosen(brokers) == {"b"}


def test_of_equals_the_first_drawn_wins() -> None:
    brokers = [broker("a", 5, 10), broker("b", 5, 10)]

    assert chosen(brokers) == {"a", "b"}


def test_a_full_broker_is_passed_over() -> None:
    brokers = [broker("full", 10, 10), broker("nearly", 9, 10), broker("none", 0, 0)]

    assert chosen(brokers) == {"nearly"}


def test_when_all_are_full_it_is_capacity_that_lacks() -> None:
    assert chosen([broker("a", 3, 3), broker("b", 4, 3), broker("c", 0, 0)]) == {"NO_CAPACITY"}


def test_a_closed_broker_gets_nothing_and_the_reason_is_given() -> None:
    draining = broker("a", 0, 10, closed="is draining")

    assert chosen([draining, broker("b", 9, 10)]) == {"b"}
    refused = place([draining], NO_RULES, (0, 0))
    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.NO_CAPACITY
    assert "is draining" in refused.message
    refused = place([draining, replace(draining, broker_id="b")], NO_RULES, (0, 0))
    assert isinstance(refused, Rejected)
    assert "draining or in quarantine" in refused.message


def test_an_avoided_broker_is_not_chosen() -> None:
    brokers = [broker("a", 0, 10), broker("b", 5, 10)]

    assert chosen(brokers, avoid={"s-a"}) == {"b"}
    assert chosen(brokers, avoid={"s-a", "s-b"}) == {"NO_CAPACITY"}


def test_the_whole_as_reported_decides_only_between_those_that_are_as_good_as_equal() -> None:
    few = broker("few", 1_000, 9_999, capacity_units=9_999, units_reported=4_000)
    many = broker("many", 1_000, 9_999, capacity_units=9_999, units_reported=5_000)
    equal = 1_000 - EQUAL_USE_PERMILLE

    assert chosen([few, replace(many, units_used=equal)]) == {"few"}
    assert chosen([few, replace(many, units_used=equal - 1)]) == {"many"}
    nearly = 5_000 - 5 * LOAD_DIFFERENCE_PERMILLE
    assert chosen([replace(few, units_reported=nearly - 1), many]) == {"few"}
    assert chosen([replace(few, units_reported=nearly), many]) == {"few", "many"}
    assert chosen([replace(few, units_reported=-1), many]) == {"few", "many"}


def test_a_busy_broker_loses_though_it_has_fewer_units() -> None:
    busy = broker("busy", 10, 99, units_reported=10, traffic=500_000, traffic_here=500_000)
    quiet = broker("quiet", 40, 99, units_reported=40, traffic=400_000, traffic_here=400_000)

    assert chosen([busy, quiet]) == {"quiet"}, "440,000 against 510,000"
    assert chosen([busy, replace(quiet, traffic_here=530_000)]) == {"busy"}


def test_traffic_of_other_shards_decides_between_those_that_are_as_good_as_equal() -> None:
    busy = broker("busy", 10, 99, units_reported=40, traffic=900_000)
    quiet = broker("quiet", 10, 99, units_reported=60, traffic=100_000)

    assert chosen([busy, quiet]) == {"quiet"}


def test_a_shards_part_of_the_traffic_is_its_part_of_all_units() -> None:
    assert even_parts([900, 300, 0], units_used=10, units_reported=30) == [300, 100, 0]
    assert even_parts([900], units_used=50, units_reported=30) == [900], "reports are late"
    assert even_parts([900], units_used=5, units_reported=0) == [0]


candidate_loads = st.tuples(st.integers(0, 400), st.integers(0, 10**7), st.integers(1, 4))


@given(candidate_loads, candidate_loads, draws)
def test_placement_prefers_the_broker_that_a_balance_would_give_units_to(
    one: tuple[int, int, int], other: tuple[int, int, int], draw: Draw
) -> None:
    """By the weight and the capacity that both compare; see ``rebalance``."""
    brokers = [
        broker(
            name,
            units,
            1_000,
            capacity_units=1_000 * capacity,
            units_reported=units,
            traffic=traffic,
            traffic_here=traffic,
        )
        for name, (units, traffic, capacity) in (("a", one), ("b", other))
    ]
    burdens = [
        Burden(name, 1_000 * capacity, units * UNIT_WEIGHT + traffic)
        for name, (units, traffic, capacity) in (("a", one), ("b", other))
    ]
    shares = shares_of(burdens)
    beyond = [
        each.broker_id
        for each in burdens
        if not is_within(each.weight, shares[each.broker_id], START_PERMILLE)
        and each.weight > shares[each.broker_id]
    ]

    choice = place(brokers, NO_RULES, draw)

    assert isinstance(choice, Choice)
    assert brokers[choice.place].broker_id not in beyond


def test_the_busier_of_equals_loses_once_the_loads_differ_by_a_tenth() -> None:
    busy = broker("busy", 5, 10, load_permille=200 + LOAD_DIFFERENCE_PERMILLE)

    assert chosen([busy, broker("idle", 5, 10, load_permille=200)]) == {"idle"}
    assert chosen([busy, broker("idle", 5, 10, load_permille=201)]) == {"busy", "idle"}
    assert chosen([busy, broker("fuller", 6, 10, load_permille=0)]) == {"busy"}


def test_units_of_a_group_go_to_one_broker_whatever_its_use_until_it_is_full() -> None:
    brokers = [broker(name, 0, 100) for name in "abcdefgh"]
    group = PlacementRules(affinity_group="reports")

    (first,) = chosen(brokers, group)
    reordered = [replace(one, units_used=99) if one.broker_id == first else one for one in brokers]
    assert chosen(reordered[::-1], group) == {first}
    full = [replace(one, units_used=100) if one.broker_id == first else one for one in brokers]
    (second,) = chosen(full, group)
    assert second != first
    assert chosen([one for one in brokers if one.broker_id != first], group) == {second}
    groups = [chosen(brokers, PlacementRules(affinity_group=f"g{n}")).pop() for n in range(100)]
    assert len(set(groups)) == len(brokers), "all groups have the same order"


def test_partitions_spread_without_a_rule() -> None:
    brokers = [broker("a", 5, 100), broker("b", 7, 100), broker("c", 6, 100)]
    peers = Peers({"s-a": 2, "s-b": 1, "s-c": 1})

    assert chosen(brokers, peers=peers) <= {"b", "c"}
    assert rule_of(brokers, peers=peers) == "spread"
    none = PlacementRules(anti_affinity=AntiAffinity.NONE)
    assert chosen([broker("a", 0, 100), broker("b", 7, 100)], none, peers=peers) == {"a"}


def test_partitions_do_not_spread_to_a_broker_that_is_much_fuller() -> None:
    peers = Peers({"s-empty": 1})
    empty = broker("empty", 0, 1_000, capacity_units=1_000)

    far = broker("far", SPREAD_COST_PERMILLE + 1, 1_000, capacity_units=1_000)
    assert chosen([empty, far], peers=peers) == {"empty"}
    near = replace(far, units_used=SPREAD_COST_PERMILLE)
    assert chosen([empty, near], peers=peers) == {"far"}


def test_the_decision_names_its_rule_and_what_was_compared() -> None:
    brokers = [
        broker("a", 5, 10, load_permille=30),
        broker("b", 3, 9),
        broker("c", 0, 10, zone="z"),
        broker("d", 10, 10),
    ]

    choice = place(brokers, PlacementRules(excluded_brokers=("c",)), (0, 0), asked_by="drain")

    assert isinstance(choice, Choice)
    assert choice.decision == PlacementDecision(
        "two_choices",
        candidates=2,
        excluded=1,
        compared=(CandidateSeen("b", 3, 9), CandidateSeen("a", 5, 10, 30)),
        asked_by="drain",
    )
    assert rule_of(brokers[:1]) == "only_one"
    assert rule_of(brokers, PlacementRules(pinned_brokers=("a", "b"))) == "pinned"
    assert rule_of(brokers, PlacementRules(affinity_group="g")) == "affinity"


def test_the_one_that_is_asked_for_is_taken_or_the_reason_said() -> None:
    brokers = [
        broker("a", 5, 10),
        broker("full", 10, 10),
        broker("leaving", 0, 10, closed="is draining"),
        broker("unleased", 0, 0),
    ]

    def ask(name: str, rules: PlacementRules = NO_RULES, **how: object) -> str:
        answer = place_at(brokers, name, rules, asked_by="operator", **how)  # type: ignore[arg-type]
        return answer.decision.rule if isinstance(answer, Choice) else answer.code.value

    assert ask("a") == "asked_for"
    assert ask("full") == "NO_CAPACITY"
    assert ask("unleased") == "NO_CAPACITY"
    assert ask("leaving") == "NO_BROKER"
    assert ask("dead") == "NO_BROKER"
    assert ask("a", avoid={"s-a"}) == "NO_CAPACITY"
    assert ask("a", PlacementRules(excluded_brokers=("a",))) == "NOT_ALLOWED"
    assert ask("a", PlacementRules(units_per_broker_max=1), peers=Peers({"s-a": 1})) == (
        "NOT_ALLOWED"
    )


fuzzed_candidates = st.lists(
    st.builds(
        lambda name, used, leased, zone, rack, capacity, closed, kind: Candidate(
            name, f"s-{name}", used, leased, zone, rack, capacity, -1, used, closed, kind=kind
        ),
        st.sampled_from(BROKERS),
        st.integers(0, 20),
        st.integers(0, 20),
        st.sampled_from(("", *ZONES)),
        st.sampled_from(("", *RACKS)),
        st.integers(0, 40),
        st.sampled_from(("", "", "is draining")),
        st.sampled_from(("", "stock")),
    ),
    unique_by=lambda one: one.broker_id,
    max_size=6,
)


def test_a_broker_of_another_kind_is_not_even_taken_when_it_is_asked_for() -> None:
    brokers = [broker("a", 0, 10), replace(broker("b", 0, 10), kind="stock")]

    for name, kind, why in (
        ("b", "", "broker b is stock, the topic is served by embedded ones only"),
        ("a", "stock", "broker a is embedded, the topic is served by stock ones only"),
    ):
        refused = place_at(brokers, name, NO_RULES, kind=kind)
        assert refused == Rejected(RejectionCode.NOT_ALLOWED, why)
    chosen = place_at(brokers, "b", NO_RULES, kind="stock")
    assert isinstance(chosen, Choice)
    assert chosen.place == 1


@given(st.data(), fuzzed_candidates, placement_rules, draws, st.sampled_from(("", "stock")))
def test_no_choice_breaks_a_rule_and_one_is_made_whenever_that_can_be(
    data: st.DataObject, brokers: list[Candidate], said: PlacementRules, draw: Draw, kind: str
) -> None:
    units = {one.session_id: data.draw(st.integers(0, 2)) for one in brokers}
    zones = frozenset(one.zone for one in brokers if units[one.session_id])
    peers = Peers(units, zones)
    avoid = data.draw(st.sets(st.sampled_from([*units, "s-nobody"])))

    choice = place(brokers, said, draw, peers=peers, avoid=avoid, kind=kind)

    able = [
        one
        for one in brokers
        if not forbids(one, said, peers, kind) and one.has_room and one.session_id not in avoid
    ]
    if isinstance(choice, Rejected):
        assert not able
        return
    assert brokers[choice.place] in able
    decision = choice.decision
    assert decision.candidates == len(able)
    assert decision.excluded == sum(bool(forbids(one, said, peers, kind)) for one in brokers)
    assert brokers[choice.place].kind == kind
    assert 1 <= len(decision.compared) <= COMPARED_MAX
    assert decision.compared[0].broker_id == brokers[choice.place].broker_id


@given(st.integers(1, 12), st.integers(1, 4), st.randoms(use_true_random=False))
def test_as_many_partitions_as_brokers_are_one_on_each(
    count: int, rounds: int, chance: random.Random
) -> None:
    """However full the brokers are with other topics, up to what a spread may cost."""
    used = [chance.randrange(90) for _ in range(count)]
    units: Counter[str] = Counter()
    for _ in range(rounds * count):
        brokers = [
            broker(f"b{at}", taken, 1_000, capacity_units=1_000) for at, taken in enumerate(used)
        ]
        choice = place(brokers, NO_RULES, _draw(chance), peers=Peers(units))
        assert isinstance(choice, Choice)
        used[choice.place] += 1
        units[brokers[choice.place].session_id] += 1

    assert set(units.values()) == {rounds}
    assert len(units) == count


@given(st.integers(1, 10), st.integers(1, 10), st.randoms(use_true_random=False))
def test_partitions_that_must_not_meet_never_do(
    brokers_count: int, partitions: int, chance: random.Random
) -> None:
    said = PlacementRules(anti_affinity=AntiAffinity.BROKER)
    units: Counter[str] = Counter()
    refused = 0
    for _ in range(partitions):
        brokers = [
            broker(f"b{at}", units[f"s-b{at}"] + 7 * at, 1_000) for at in range(brokers_count)
        ]
        choice = place(brokers, said, _draw(chance), peers=Peers(units))
        if isinstance(choice, Rejected):
            refused += 1
        else:
            units[brokers[choice.place].session_id] += 1

    assert max(units.values()) == 1
    assert refused == max(0, partitions - brokers_count)


def test_several_shards_that_see_only_their_own_units_fill_brokers_evenly() -> None:
    """Each shard knows its own units, and of the others what brokers reported a while ago."""
    chance = random.Random(7)
    shards, brokers_count, topics = 8, 10, 8_000
    used = [[0] * brokers_count for _ in range(shards)]
    reported = [0] * brokers_count
    worst = 0.0
    for number in range(1, topics + 1):
        mine = used[chance.randrange(shards)]
        brokers = [
            broker(f"b{at}", mine[at], 5_000, capacity_units=50_000, units_reported=reported[at])
            for at in range(brokers_count)
        ]
        choice = place(brokers, NO_RULES, _draw(chance), peers=NO_PEERS)
        assert isinstance(choice, Choice)
        mine[choice.place] += 1
        totals = [sum(column) for column in zip(*used, strict=True)]
        if number % 1_000 == 0:
            reported = totals
            worst = max(worst, max(totals) * brokers_count / number)

    assert worst <= 1.10, worst


def test_a_shard_that_began_unevenly_is_evened_out_by_what_brokers_report() -> None:
    """One shard's units are all on the first broker; another one, which sees none of them, may
    lean the other way by what counts as equal, and no more."""
    chance = random.Random(11)
    mine = [0, 0, 0, 0]
    for _ in range(4_000):
        brokers = [
            broker(
                f"b{at}",
                count,
                5_000,
                capacity_units=50_000,
                units_reported=count + (2_000 if at == 0 else 0),
            )
            for at, count in enumerate(mine)
        ]
        choice = place(brokers, NO_RULES, _draw(chance))
        assert isinstance(choice, Choice)
        mine[choice.place] += 1

    assert mine[0] == min(mine)
    assert mine[0] < 1_000 < max(mine)
    assert max(mine) <= min(mine) * (1_000 + 2 * EQUAL_USE_PERMILLE) / 1_000


def _draw(chance: random.Random) -> Draw:
    return chance.getrandbits(32), chance.getrandbits(32)


def test_a_preferred_broker_is_chosen_whatever_is_drawn_and_however_full() -> None:
    brokers = [broker("a", 0, 100), broker("b", 99, 100), broker("c", 1, 100)]

    assert chosen(brokers, prefer="b") == {"b"}
    assert rule_of(brokers, prefer="b") == "created_there"


def test_a_preferred_broker_that_may_not_be_chosen_is_no_reason_to_refuse() -> None:
    others = [broker("a", 0, 100)]

    for unusable in (broker("b", 100, 100), broker("b", 0, 100, closed="is draining")):
        assert chosen([*others, unusable], prefer="b") == {"a"}
    free = [*others, broker("b", 0, 100)]
    assert chosen(free, prefer="b", avoid={"s-b"}) == {"a"}
    assert chosen(free, prefer="unknown") <= {"a", "b"}
    assert chosen(free, PlacementRules(excluded_brokers=("b",)), prefer="b") == {"a"}
    assert chosen(free, PlacementRules(pinned_brokers=("a",)), prefer="b") == {"a"}


def test_an_affinity_group_goes_before_a_preference() -> None:
    brokers = [broker("a", 0, 100), broker("b", 0, 100), broker("c", 0, 100)]
    rules = PlacementRules(affinity_group="g")
    (of_group,) = chosen(brokers, rules)

    for preferred in ("a", "b", "c"):
        assert chosen(brokers, rules, prefer=preferred) == {of_group}
