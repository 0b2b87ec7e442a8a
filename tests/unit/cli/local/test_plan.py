"""What a local cluster consists of."""

from __future__ import annotations

import json
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest

import brokers.config
import cluster_manager.config
import discovery.config
import shards.config
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import (
    LEDGERS_FOLDER,
    MINIMAL,
    PLAN_FILE,
    PLAN_FORMAT,
    ClusterPlan,
    ClusterSize,
    load_plan,
    make_plan,
    make_plan_on_free_ports,
)
from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.security.cluster_secret import SECRET_FILE


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


def test_pulsar_clients_are_given_every_discovery_node():
    plan = make_plan(ClusterSize(), port_base=20_000)

    assert plan.service_url == "pulsar://127.0.0.1:20003,127.0.0.1:20007"


def test_pulsar_is_spoken_where_clients_connect_and_nowhere_else(tmp_path: Path):
    plan = make_plan(MINIMAL)

    for node in plan.nodes:
        arguments = plan.arguments(node, tmp_path)
        speaks = node.kind in ("discovery", "broker")
        assert (node.pulsar != "") == ("--pulsar-listen" in arguments) == speaks
        if speaks:
            assert arguments[arguments.index("--pulsar-advertise") + 1] == node.pulsar
            assert node.pulsar_port in [port for port, _ in node.purposes()]


def test_all_brokers_keep_their_messages_in_one_place(tmp_path: Path):
    plan = make_plan(ClusterSize())

    arguments = [plan.arguments(broker, tmp_path) for broker in plan.of_kind("broker")]

    places = {given[given.index("--ledger-dir") + 1] for given in arguments}
    assert places == {str(tmp_path / LEDGERS_FOLDER)}


def test_every_process_takes_the_flags_that_the_plan_gives_it(tmp_path: Path):
    plan = make_plan(ClusterSize())
    parsers = {
        "cluster-manager": cluster_manager.config.parse_config,
        "shard-node": shards.config.parse_config,
        "discovery": discovery.config.parse_config,
        "broker": brokers.config.parse_config,
    }

    for node in plan.nodes:
        config = parsers[node.kind](plan.arguments(node, tmp_path), {})
        assert config.node_id == node.node_id
        assert config.cluster_secret_file == tmp_path / SECRET_FILE
        assert config.cluster_secret_required


async def test_a_local_cluster_makes_its_secret_once(tmp_path: Path):
    cluster = LocalCluster(ClusterPlan("none", MINIMAL, ()), tmp_path)

    await cluster.start()
    made = (tmp_path / SECRET_FILE).read_bytes()
    await cluster.start()

    assert (tmp_path / SECRET_FILE).read_bytes() == made
    assert stat.S_IMODE((tmp_path / SECRET_FILE).stat().st_mode) == 0o600


def test_a_stored_plan_comes_back_as_it_was(tmp_path: Path):
    plan = make_plan(replace(ClusterSize(), shards=7), cluster_id="mine")

    plan.save(tmp_path / "new")

    assert load_plan(tmp_path / "new") == plan


def test_there_is_no_plan_where_none_was_stored(tmp_path: Path):
    assert load_plan(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 99}'])
def test_a_damaged_plan_is_refused_with_its_path(tmp_path: Path, text: str):
    (tmp_path / PLAN_FILE).write_text(text)

    with pytest.raises(RefusesToStart, match=r"plan\.json"):
        load_plan(tmp_path)


def test_a_plan_of_another_format_is_refused_with_what_to_do(tmp_path: Path):
    make_plan(MINIMAL).save(tmp_path)
    path = tmp_path / PLAN_FILE
    stored = json.loads(path.read_text())
    assert stored["format"] == PLAN_FORMAT
    path.write_text(json.dumps({**stored, "format": PLAN_FORMAT - 1}))

    with pytest.raises(RefusesToStart, match=r"has format 1, .* name another --data-dir"):
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


def test_all_of_them_are_reported_to_every_cluster_manager(tmp_path: Path):
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


def test_a_plan_grows_by_a_node_with_an_id_and_ports_of_its_own(tmp_path: Path):
    plan = make_plan_on_free_ports(ClusterSize())

    grown = plan.with_node("shard-node").with_node("broker")

    assert [node.node_id for node in grown.nodes[len(plan.nodes) :]] == ["shard-node-4", "broker-4"]
    assert grown.nodes[: len(plan.nodes)] == plan.nodes
    assert grown.size == plan.size, "the size is what the first map is made of"
    ports = [port for node in grown.nodes for port, _ in node.purposes()]
    assert len(ports) == len(set(ports))
    grown.save(tmp_path)
    assert load_plan(tmp_path) == grown


def test_an_id_that_was_used_is_not_used_again():
    plan = make_plan_on_free_ports(ClusterSize())

    shrunk = plan.without_node("shard-node-3")

    assert [node.node_id for node in shrunk.of_kind("shard-node")] == [
        "shard-node-1",
        "shard-node-2",
    ]
    again = shrunk.with_node("shard-node", ["shard-node-3", "shard-node-x", "logs"])
    assert again.nodes[-1].node_id == "shard-node-4"


def test_a_node_that_is_added_avoids_ports_that_are_taken():
    plan = make_plan_on_free_ports(MINIMAL)
    first = plan.with_node("discovery").nodes[-1].grpc_port
    with socket.create_server(("127.0.0.1", first)):
        assert plan.with_node("discovery").nodes[-1].grpc_port > first
