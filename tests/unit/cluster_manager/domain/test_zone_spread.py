"""How many replicas of a shard each zone has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.domain.zone_spread import ZoneSpread


@pytest.mark.parametrize(
    ("zones", "replicas", "least", "most"),
    [
        ("aaaa", 3, {"a": 3}, {"a": 3}),
        ("abc", 3, {"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}),
        ("aabb", 3, {"a": 1, "b": 1}, {"a": 2, "b": 2}),
        ("abbbb", 3, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        ("aabbccdd", 3, dict.fromkeys("abcd", 0), dict.fromkeys("abcd", 1)),
        ("aabbcc", 5, dict.fromkeys("abc", 1), dict.fromkeys("abc", 2)),
        ("ab", 3, {"a": 1, "b": 1}, {"a": 1, "b": 1}),
        ("", 3, {}, {}),
    ],
)
def test_replicas_are_spread_as_evenly_as_the_nodes_allow(
    zones: str, replicas: int, least: dict[str, int], most: dict[str, int]
) -> None:
    spread = ZoneSpread.of(zones, replicas)

    assert (spread.least, spread.most) == (least, most)


def test_unevenness_counts_what_is_missing_and_what_is_too_much() -> None:
    spread = ZoneSpread.of("aabbcc", 3)

    assert spread.unevenness({"a": 1, "b": 1, "c": 1}) == 0
    assert spread.unevenness({"a": 2, "b": 1}) == 2
    assert spread.unevenness({"a": 1, "b": 1, "gone": 1}) == 2
    assert spread.with_one_more(["a"]) == {"a": 3, "b": 1, "c": 1}


def test_a_small_zone_gets_no_more_than_its_nodes_and_the_others_share_the_rest() -> None:
    """Two zones share three replicas: the larger one has the second replica of each shard."""
    assert ZoneSpread.of("aabbbb", 3).shares(60) == pytest.approx({"a": 30, "b": 30})
    assert ZoneSpread.of("abbbb", 3).shares(60) == pytest.approx({"a": 60, "b": 30})


@given(zones=st.text("abcd", min_size=1, max_size=12), replicas=st.integers(1, 7))
def test_shares_are_those_of_all_replicas(zones: str, replicas: int) -> None:
    spread, shards = ZoneSpread.of(zones, replicas), 24

    shares = spread.shares(shards)

    total = sum(shares[zone] for zone in zones)
    assert total == pytest.approx(shards * min(replicas, len(zones)))
    assert all(0 <= share <= shards * 1.000_001 for share in shares.values())
