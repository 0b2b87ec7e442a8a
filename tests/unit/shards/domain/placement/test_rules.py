"""Which brokers the rules allow, and which rule is named when they allow none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.policies import NO_RULES, AntiAffinity, PlacementRules
from shards.domain.placement.rules import NO_PEERS, Candidate, Peers, allowed_places, forbids
from tests.support.shards.placement_strategies import BROKERS, RACKS, ZONES, placement_rules


def broker(name: str, zone: str = "", rack: str = "", kind: str = "") -> Candidate:
    return Candidate(name, f"s-{name}", 0, 10, zone, rack, kind=kind)


CLUSTER = (
    broker("a", "z1", "r1"),
    broker("b", "z1", "r2"),
    broker("c", "z2", "r1"),
    broker("d", "z2", "r2"),
)


def names(allowed: list[int] | Rejected) -> str:
    assert isinstance(allowed, list), allowed
    return "".join(CLUSTER[place].broker_id for place in allowed)


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (NO_RULES, "abcd"),
        (PlacementRules(pinned_brokers=("b", "gone")), "b"),
        (PlacementRules(excluded_brokers=("b", "c")), "ad"),
        (PlacementRules(zones=("z2",)), "cd"),
        (PlacementRules(racks=("r2",)), "bd"),
        (PlacementRules(zones=("z1",), racks=("r1",)), "a"),
        (PlacementRules(pinned_brokers=("a", "c", "d"), excluded_brokers=("c",)), "ad"),
        (PlacementRules(anti_affinity=AntiAffinity.BROKER), "cd"),
        (PlacementRules(anti_affinity=AntiAffinity.ZONE), "cd"),
        (PlacementRules(anti_affinity=AntiAffinity.NONE), "abcd"),
        (PlacementRules(units_per_broker_max=1), "cd"),
        (PlacementRules(units_per_broker_max=2), "bcd"),
        (PlacementRules(units_per_broker_max=3), "abcd"),
    ],
)
def test_a_rule_allows_what_it_says(rules: PlacementRules, allowed: str) -> None:
    peers = Peers({"s-a": 2, "s-b": 1}, frozenset(("z1",)))

    assert names(allowed_places(CLUSTER, rules, peers)) == allowed


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        (PlacementRules(pinned_brokers=("x", "y", "z", "v", "w")), "x, y, z and 2 more"),
        (PlacementRules(pinned_brokers=("a",), zones=("z2",)), "placement.zones"),
        (PlacementRules(excluded_brokers=("a", "b", "c", "d")), "placement.excluded_brokers"),
        (PlacementRules(racks=("r9",)), "placement.racks (only r9) leaves none of a, b, c"),
        (PlacementRules(zones=("z1",), anti_affinity=AntiAffinity.BROKER), "anti_affinity"),
        (PlacementRules(zones=("z1",), units_per_broker_max=1), "units_per_broker_max"),
    ],
)
def test_rules_that_leave_nobody_are_refused_by_name(rules: PlacementRules, named: str) -> None:
    peers = Peers({"s-a": 1, "s-b": 1}, frozenset(("z1",)))

    refused = allowed_places(CLUSTER, rules, peers)

    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.NO_BROKER
    assert named in refused.message


def test_without_brokers_no_rule_is_blamed() -> None:
    refused = allowed_places((), PlacementRules(zones=("z1",)), NO_PEERS)

    assert refused == Rejected(RejectionCode.NO_BROKER, "no broker is alive")


def test_brokers_that_say_no_zone_share_one() -> None:
    brokers = (broker("a"), broker("b"), broker("c", "z1"))
    rules = PlacementRules(anti_affinity=AntiAffinity.ZONE)

    assert allowed_places(brokers, rules, Peers({"s-a": 1}, frozenset(("",)))) == [2]


KINDS = ("", "stock", "of a later release")

clusters = st.lists(
    st.builds(
        broker,
        st.sampled_from(BROKERS),
        st.sampled_from(("", *ZONES)),
        st.sampled_from(("", *RACKS)),
        st.sampled_from(KINDS),
    ),
    unique_by=lambda one: one.broker_id,
    max_size=4,
)


@st.composite
def peers_of(draw: st.DrawFn, cluster: list[Candidate]) -> Peers:
    units = {one.session_id: draw(st.integers(0, 3)) for one in cluster}
    zones = frozenset(one.zone for one in cluster if units[one.session_id])
    return Peers(units, zones)


def is_broken(one: Candidate, rules: PlacementRules, peers: Peers, kind: str) -> bool:
    """The rules again, said another way."""
    others = peers.units.get(one.session_id, 0)
    return any(
        (
            one.kind != kind,
            bool(rules.pinned_brokers) and one.broker_id not in rules.pinned_brokers,
            one.broker_id in rules.excluded_brokers,
            bool(rules.zones) and one.zone not in rules.zones,
            bool(rules.racks) and one.rack not in rules.racks,
            rules.anti_affinity is AntiAffinity.BROKER and others > 0,
            rules.anti_affinity is AntiAffinity.ZONE and one.zone in peers.zones,
            0 < rules.units_per_broker_max <= others,
        )
    )


@given(st.data(), clusters, placement_rules, st.sampled_from(KINDS))
def test_exactly_the_brokers_that_break_no_rule_are_allowed(
    data: st.DataObject, cluster: list[Candidate], said: PlacementRules, kind: str
) -> None:
    peers = data.draw(peers_of(cluster))

    allowed = allowed_places(cluster, said, peers, kind)

    right = [place for place, one in enumerate(cluster) if not is_broken(one, said, peers, kind)]
    assert (right or None) == (allowed if isinstance(allowed, list) else None)
    for one in cluster:
        assert bool(forbids(one, said, peers, kind)) == is_broken(one, said, peers, kind)


SIDE_BY_SIDE = (broker("a"), broker("b", kind="stock"), broker("c"))


@pytest.mark.parametrize("rules", [NO_RULES, PlacementRules(excluded_brokers=("c",))])
def test_without_any_rule_a_topic_goes_only_where_its_messages_are(rules: PlacementRules) -> None:
    assert allowed_places(SIDE_BY_SIDE, rules, NO_PEERS, "stock") == [1]
    assert 1 not in allowed_places(SIDE_BY_SIDE, rules, NO_PEERS)  # type: ignore[operator]


def test_no_rule_can_ask_for_a_broker_of_another_kind() -> None:
    refused = allowed_places(SIDE_BY_SIDE, PlacementRules(pinned_brokers=("b",)), NO_PEERS)

    assert isinstance(refused, Rejected)
    assert "placement.pinned_brokers (only b) leaves none of a, c" in refused.message


@pytest.mark.parametrize(
    ("brokers", "kind", "why"),
    [
        (SIDE_BY_SIDE[:1], "stock", "no stock broker is alive"),
        (SIDE_BY_SIDE[1:2], "", "no embedded broker is alive"),
        ((), "stock", "no stock broker is alive"),
    ],
)
def test_where_no_broker_of_its_kind_lives_a_topic_is_refused_by_that_name(
    brokers: tuple[Candidate, ...], kind: str, why: str
) -> None:
    assert allowed_places(brokers, NO_RULES, NO_PEERS, kind) == Rejected(
        RejectionCode.NO_BROKER, why
    )
