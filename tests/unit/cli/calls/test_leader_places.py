"""Whether preferred replicas lead, as a discovery node knows it."""

from __future__ import annotations

from nextgen.cli.calls.leader_places import misplaced_in
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, LeaderReport
from protos.nextgen.v1.events_pb2 import ShardMapChanged, ShardPlacement


def cluster(leaders: dict[int, str], **leaving: list[str]) -> ClusterUpdate:
    placements = [
        ShardPlacement(shard_id=1, replicas=["a", "b"], **leaving),
        ShardPlacement(shard_id=2, replicas=["b", "a"]),
    ]
    reports = [LeaderReport(shard_id=one, node_id=node) for one, node in leaders.items()]
    return ClusterUpdate(shard_map=ShardMapChanged(shards=placements), leaders=reports)


def test_shards_that_their_first_replica_leads_are_settled() -> None:
    assert misplaced_in(cluster({1: "a", 2: "b"})) == []


def test_a_shard_without_a_leader_and_one_led_elsewhere_are_named() -> None:
    assert misplaced_in(cluster({1: "b"})) == [
        "shard 1 is led by b, its preferred leader is a",
        "shard 2 has no leader",
    ]


def test_a_replica_that_is_to_leave_is_not_the_preferred_leader() -> None:
    assert misplaced_in(cluster({1: "b", 2: "b"}, leaving=["a"])) == []
