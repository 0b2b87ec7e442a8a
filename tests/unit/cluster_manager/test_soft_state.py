"""Leader endpoints: the highest term wins."""

from __future__ import annotations

import pytest

from cluster_manager.domain.leader_spread import Leadership
from cluster_manager.service.soft_state import LeaderEndpoint, LeaderEndpoints

KNOWN = LeaderEndpoint(1, 5, "a", "a:1")


@pytest.mark.parametrize(
    ("offered", "is_news"),
    [
        (KNOWN, False),
        (LeaderEndpoint(1, 4, "b", "b:1"), False),
        (LeaderEndpoint(1, 5, "b", "b:1"), False),
        (LeaderEndpoint(1, 5, "a", "a:2"), True),
        (LeaderEndpoint(1, 6, "b", "b:1"), True),
        (LeaderEndpoint(2, 1, "b", "b:1"), True),
    ],
    ids=["again", "lower term", "two in one term", "new address", "higher term", "other shard"],
)
def test_only_what_is_newer_is_news(offered: LeaderEndpoint, is_news: bool) -> None:
    endpoints = LeaderEndpoints()
    endpoints.offer(KNOWN, 10)

    assert endpoints.offer(offered, 20) is is_news

    expected = offered if is_news else KNOWN
    assert endpoints.get(expected.shard_id) == expected


def test_a_leadership_counts_from_when_its_term_was_first_heard_of() -> None:
    endpoints = LeaderEndpoints()
    endpoints.offer(KNOWN, 10)
    endpoints.offer(LeaderEndpoint(1, 5, "a", "a:2"), 20)
    assert endpoints.leaderships() == {1: Leadership("a", 10)}

    endpoints.offer(LeaderEndpoint(1, 6, "a", "a:2"), 30)
    assert endpoints.leaderships() == {1: Leadership("a", 30)}
    assert len(endpoints) == 1
    assert repr(endpoints) == "<LeaderEndpoints 1:a>"
