"""What a local cluster consists of."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from nextgen.cli.plan import (
    MINIMAL,
    PLAN_FILE,
    ClusterSize,
    load_plan,
    make_plan,
    make_plan_on_free_ports,
)
from nextgen.kernel.errors import RefusesToStart


def test_the_default_cluster_is_the_smallest_that_survives_any_one_failure():
    plan = make_plan(ClusterSize())

    counts = {
        kind: len(plan.of_kind(kind))
        for kind in ("cluster-manager", "shard-node", "discovery", "broker")
    }
    assert counts == {"cluster-manager": 3, "shard-node": 3, "discovery": 2, "broker": 3}
    assert (plan.size.shards, plan.size.replication_factor) == (4, 3)


def test_no_two_listeners_share_a_port_and_discovery_has_the_first():
    plan = make_plan(ClusterSize(), port_base=20_000)

    ports = [port for node in plan.nodes for port, _ in node.purposes()]
    assert len(ports) == len(set(ports))
    assert plan.discovery_endpoints[0] == "127.0.0.1:20000"


def test_a_stored_plan_comes_back_as_it_was(tmp_path: Path):
    plan = make_plan(replace(ClusterSize(), shards=7), cluster_id="mine")

    plan.save(tmp_path / "new")

    assert load_plan(tmp_path / "new") == plan


def test_there_is_no_plan_where_none_was_stored(tmp_path: Path):
    assert load_plan(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 99}'])
def test_a_damaged_plan_is_refused_with_its_path(tmp_path: Path, text: str):
    (tmp_path / PLAN_FILE).write_text(text)

    with pytest.raises(RefusesToStart, match=r"plan\.json"):
        load_plan(tmp_path)


def test_a_taken_port_is_named_with_what_it_was_for():
    plan = make_plan_on_free_ports(MINIMAL)
    broker = plan.node("broker-1")
    with (
        socket.create_server(("127.0.0.1", broker.grpc_port)),
        pytest.raises(RefusesToStart) as refusal,
    ):
        plan.check_ports()

    assert str(broker.grpc_port) in str(refusal.value)
    assert "gRPC of broker-1" in str(refusal.value)


@pytest.mark.parametrize("port_base", [0, 65_530])
def test_a_port_base_without_room_is_refused(port_base: int):
    with pytest.raises(RefusesToStart, match="no room"):
        make_plan(ClusterSize(), port_base=port_base)


def test_every_cluster_manager_is_told_of_all_of_them(tmp_path: Path):
    plan = make_plan(ClusterSize(), port_base=20_000)
    node = plan.node("cluster-manager-2")

    arguments = plan.arguments(node, tmp_path)

    peers = arguments[arguments.index("--peers") + 1].split(",")
    assert len(peers) == 3
    assert f"cluster-manager-2={node.raft}={node.grpc}" in peers


def test_a_process_without_data_is_given_no_data_directory(tmp_path: Path):
    plan = make_plan(MINIMAL)

    assert "--data-dir" not in plan.arguments(plan.node("discovery-1"), tmp_path)
    assert "--data-dir" in plan.arguments(plan.node("shard-node-1"), tmp_path)
