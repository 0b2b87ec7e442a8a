"""A person adds a shard node to a laptop's cluster, moves everything there, and removes the old."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nextgen.cli.local.cluster_state import read_state
from nextgen.cli.local.plan import MINIMAL, load_plan, make_plan_on_free_ports
from nextgen.runtime.lifecycle.exit_code import ExitCode
from tests.integration.cli.test_command_line import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture
def nextgen(tmp_path: Path) -> Iterator[CommandLine]:
    command_line = CommandLine(tmp_path)
    port_base = make_plan_on_free_ports(MINIMAL).nodes[0].grpc_port
    command_line.json("up", "--minimal", "--detach", "--port-base", str(port_base))
    try:
        command_line.json("tenants", "create", "acme")
        command_line.json("namespaces", "create", "acme/orders")
        yield command_line
    finally:
        command_line.run("down")


@pytest.mark.slow
def test_everything_moves_to_a_node_that_is_added_and_the_old_one_goes(nextgen: CommandLine):
    nextgen.json("topics", "create", "acme/orders/before")
    nextgen.json("brokers", "settings", "set", "shardReplicasBalanceEnabled=false")

    added = nextgen.json("nodes", "add", "shard")
    assert added["node_id"] == "shard-node-2"
    assert "last replica" in nextgen.refused("shards", "replicas", "remove", "1", "shard-node-1")
    assert "has replicas" in nextgen.refused("nodes", "remove", "shard-node-1")
    done = nextgen.json("shards", "replicas", "add", "all", "shard-node-2")
    assert (done["shard_id"], done["change"], done["done"]) == (1, "add", True)
    removed = nextgen.json("shards", "replicas", "remove", "1", "shard-node-1")
    assert removed["done"] is True
    assert removed["shard_map_version"] > done["shard_map_version"]

    nextgen.json_when(
        lambda found: (
            [(shard["leader"], shard["voters"]) for shard in found["shards"]]
            == [("shard-node-2", ["shard-node-2"])]
        ),
        *("shards", "replicas", "list"),
    )
    table = nextgen.run("shards", "replicas", "list", "1").stdout
    assert "shard-node-2" in table
    assert "shard-node-1" not in table
    nextgen.json("nodes", "remove", "shard-node-1")
    running = read_state(nextgen.data_dir)
    assert running is not None
    assert "shard-node-1" not in running.node_pids
    assert psutil.pid_exists(running.node_pids["shard-node-2"])

    nextgen.json("topics", "create", "acme/orders/after")
    listed = nextgen.json("topics", "list", "acme/orders")["topics"]
    assert [topic["name"].rpartition("/")[2] for topic in listed] == ["after", "before"]

    # The plan is what the next start goes by.
    nextgen.json("down")
    nextgen.json("up", "--detach")
    plan = load_plan(nextgen.data_dir)
    assert plan is not None
    assert [node.node_id for node in plan.of_kind("shard-node")] == ["shard-node-2"]
    assert nextgen.json("topics", "get", "acme/orders/before")["topic_id"]


@pytest.mark.slow
def test_a_change_that_takes_longer_than_allowed_says_what_it_waits_for(nextgen: CommandLine):
    nextgen.json("brokers", "settings", "set", "shardReplicasBalanceEnabled=false")
    added = nextgen.json("nodes", "add", "shard")["node_id"]
    running = read_state(nextgen.data_dir)
    assert running is not None
    psutil.Process(running.node_pids[added]).suspend()
    arguments = ("shards", "replicas", "add", "1", added)

    recorded = nextgen.run(*arguments, "--no-wait", "--json")
    late = nextgen.run(*arguments, "--timeout-ms", "8000")
    cancelled = nextgen.json("shards", "replicas", "cancel", "1", added)

    assert json.loads(recorded.stdout)["done"] is False
    assert late.returncode == ExitCode.NO_ANSWER
    assert "is recorded and goes on" in late.stderr
    assert added in late.stderr
    assert cancelled["done"] is True
    psutil.Process(running.node_pids[added]).resume()


def test_a_drained_node_gives_its_replica_to_another_and_may_go(nextgen: CommandLine):
    assert "only 0 active shard nodes are connected" in nextgen.refused(
        "nodes", "drain", "shard-node-1"
    )
    assert "has ever joined" in nextgen.refused("nodes", "drain", "shard-node-9")
    added = nextgen.json("nodes", "add", "shard")["node_id"]

    drained = nextgen.json("nodes", "drain", "shard-node-1")
    assert (drained["state"], drained["replicas"]) == ("leaving", 1)
    plan = nextgen.json("shards", "replicas", "rebalance", "--timeout-ms", "60000")

    held = {node["node_id"]: (node["state"], node["replicas"]) for node in plan["nodes"]}
    assert held == {"shard-node-1": ("leaving", 0), added: ("active", 1)}
    assert (plan["moves"], plan["under_way"]) == ([], [])
    assert "leaving" in nextgen.run("nodes", "list").stdout
    assert (
        "every replica is where it should be"
        in nextgen.run("shards", "replicas", "rebalance", "--dry-run").stdout
    )
    nextgen.json("nodes", "remove", "shard-node-1")
    (removed, kept) = nextgen.json("nodes", "list")["nodes"]
    assert (removed["state"], kept["state"]) == ("removed", "active")
    stopped = nextgen.json("shards", "replicas", "rebalance", "--stop")
    assert (stopped["is_on"], stopped["is_requested"]) == (False, False)
    assert nextgen.json("tenants", "get", "acme")["name"] == "acme"
