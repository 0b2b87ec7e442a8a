"""Which processes the demo kills."""

from __future__ import annotations

import pytest

from nextgen.harness.demo.victims import (
    ShadowRoles,
    busiest_shard_leader,
    fullest_broker,
    manager_leader,
    shadow_roles,
)
from nextgen.kernel.errors import Unavailable


def shard(shard_id: int, leader: str, position: int) -> dict[str, object]:
    return {"shard_id": shard_id, "leader": leader, "commit_position": position}


def test_the_busiest_leader_is_the_one_whose_shards_hold_most_events():
    shards = [shard(1, "a", 50), shard(2, "b", 60), shard(3, "a", 20), shard(4, "", 900)]

    assert busiest_shard_leader({"shards": shards}) == ("a", [1, 3])


def test_without_any_leader_there_is_nobody_to_kill():
    with pytest.raises(Unavailable):
        busiest_shard_leader({"shards": [shard(1, "", 5)]})


def test_the_leading_cluster_manager_is_found_among_those_that_answer():
    managers = [
        {"error": "gone"},
        {"node_id": "m-2", "role": "leader"},
        {"node_id": "m-3", "role": "follower"},
    ]

    assert manager_leader({"managers": managers}) == "m-2"


def test_the_fullest_broker_is_live_and_answers():
    brokers = [
        {"broker_id": "b-1", "is_live": True, "topics": 5},
        {"broker_id": "b-2", "is_live": True, "topics": 9},
        {"broker_id": "b-3", "is_live": False, "topics": 99},
        {"broker_id": "b-4", "is_live": True, "error": "gone"},
    ]

    assert fullest_broker({"brokers": brokers}) == ("b-2", 9)
    assert fullest_broker({"brokers": brokers}, {"b-1", "b-3"}) == ("b-1", 5)
    assert fullest_broker({"brokers": brokers}, {"b-3", "b-4"}) == ("b-2", 9)


def test_a_broker_serves_shadows_and_feeds_those_of_others():
    places = {"x": "b-1", "y": "b-2", "z": "b-2", "x-s": "b-2", "y-s": "b-1", "z-s": "b-2"}

    roles = shadow_roles(places, {"x-s": "x", "y-s": "y", "z-s": "z"})

    assert roles == {"b-1": ShadowRoles(1, 1), "b-2": ShadowRoles(2, 1)}
    assert roles["b-1"].has_both
    assert not ShadowRoles(2, 0).has_both
    assert not ShadowRoles(0, 2).has_both
