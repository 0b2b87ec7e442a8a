"""Whether a cluster is well, and what is wrong with one that is not."""

from __future__ import annotations

from typing import Any

import pytest

from nextgen.cli.calls.cluster_problems import assessed
from nextgen.cli.calls.cluster_status import print_status


def replica(node_id: str, role: str = "follower") -> dict[str, Any]:
    return {"node_id": node_id, "role": role, "lag_positions": 0, "stage": "replica"}


def healthy() -> dict[str, Any]:
    manager = {"node_id": "cm-1", "grpc": "h:1", "role": "leader", "term": 1}
    broker = {"is_live": True, "draining": False, "session_id": "s", "grpc": "h:4"}
    counts = {"epoch": 1, "topics": 0, "applied_sequence": 0, "pulsar_url": "pulsar://h:5"}
    shard = {"shard_id": 1, "leader": "node-1", "term": 1, "commit_position": 9}
    return {
        "shard_map_version": 2,
        "managers": [manager | {"applied_position": 1, "elections": 1}],
        "shards": [shard | {"replicas": [replica("node-1", "leader"), replica("node-2")]}],
        "discovery": [
            {"node_id": "d-1", "grpc": "h:2", "http": "h:3", "shard_map_version": 2}
            | {"leaders_known": 1}
        ],
        "brokers": [broker | counts | {"broker_id": f"b-{number}"} for number in (1, 2)],
        "sessions": [],
    }


def test_a_cluster_without_a_problem_is_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    found = assessed(healthy(), None)
    print_status(found)

    assert (found["healthy"], found["problems"]) == (True, [])
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "healthy: 1 cluster managers, 1 shards, 1 discovery, 2 brokers"


def test_each_problem_is_named_in_the_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    gathered = healthy()
    gathered["managers"][0] = {"grpc": "h:1", "error": "gone"}
    gathered["shards"][0]["leader"] = ""
    gathered["shards"][0]["replicas"] = [replica("node-1"), replica("node-2", "unreachable")]
    gathered["shards"][0]["replicas"][0]["disk_trouble"] = "the disk is full"
    gathered["discovery"][0] |= {"error": "gone"}
    gathered["brokers"][0]["is_live"] = False
    gathered["brokers"][1]["error"] = "gone"

    found = assessed(gathered, None)
    print_status(found)

    assert found["problems"] == [
        "the cluster manager at h:1 does not answer",
        "no cluster manager leads",
        "shard 1 has no leader",
        "shard 1 at node-1: the disk is full",
        "node-2 does not answer for its replicas of shard 1",
        "d-1 does not answer",
        "b-1 has no session",
        "b-2 does not answer",
    ]
    assert capsys.readouterr().out.startswith("8 problems: the cluster manager at h:1 does not")


def test_brokers_and_nodes_that_were_removed_are_left_out() -> None:
    gathered = healthy()
    gathered["brokers"][0] |= {"is_live": False, "draining": True}
    removed = assessed(gathered, None)

    gathered["brokers"][0]["draining"] = False
    gathered["discovery"].append({"node_id": "d-2", "grpc": "h:9", "http": "", "error": "gone"})
    of_plan = assessed(gathered, {"d-1", "b-2"})
    killed = assessed(gathered, {"d-1", "d-2", "b-1", "b-2"})

    assert (removed["healthy"], of_plan["healthy"]) == (True, True)
    assert [each["broker_id"] for each in of_plan["brokers"]] == ["b-2"]
    assert killed["problems"] == ["d-2 does not answer", "b-1 has no session"]
