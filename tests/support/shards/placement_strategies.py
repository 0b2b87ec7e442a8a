"""Placement rules as hypothesis makes them up: few names, so that rules meet and contradict."""

from __future__ import annotations

from hypothesis import strategies as st

from nextgen.kernel.governance.policies import AntiAffinity, PlacementRules

BROKERS = ("a", "b", "c", "d", "e", "f")
ZONES = ("z1", "z2")
RACKS = ("r1", "r2")

_some_brokers = st.lists(st.sampled_from(BROKERS), unique=True, max_size=3).map(tuple)

placement_rules = st.builds(
    PlacementRules,
    pinned_brokers=_some_brokers,
    excluded_brokers=_some_brokers,
    zones=st.lists(st.sampled_from(ZONES), unique=True).map(tuple),
    racks=st.lists(st.sampled_from(RACKS), unique=True).map(tuple),
    affinity_group=st.sampled_from(("", "g")),
    anti_affinity=st.sampled_from((None, *AntiAffinity)),
    units_per_broker_max=st.integers(0, 2),
)
