"""A process that must not run says so in one sentence, exits 78 and leaves the disk as it was."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nextgen.cli.local.plan import MINIMAL, PORTS_PER_NODE, ClusterPlan, make_plan_on_free_ports
from nextgen.client import BlockingClient
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import BlockingCluster, blocking_cluster
from tests.support.processes.refusals import LOCK, REFUSED, start_refused, tree

NODES = ("shard-node-1", "cluster-manager-1")
EVERY_KIND = (*NODES, "discovery-1", "broker-1")
MADE_BY_UP = {"cluster.secret"}
"""What is in the directory before a process starts."""


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> tuple[ClusterPlan, Path]:
    """The plan and the data of a small cluster that ran and was stopped."""
    directory = tmp_path_factory.mktemp("used")
    with blocking_cluster(directory, MINIMAL) as cluster:
        with BlockingClient(list(cluster.plan.discovery_endpoints)) as client:
            client.create_tenant("acme")
        return cluster.plan, directory


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    with blocking_cluster(tmp_path_factory.mktemp("running"), MINIMAL) as cluster:
        yield cluster


@pytest.fixture
def copied(used: tuple[ClusterPlan, Path], tmp_path: Path) -> tuple[ClusterPlan, Path]:
    """The same, to be damaged."""
    plan, directory = used
    return plan, shutil.copytree(directory, tmp_path / "copied")


@pytest.mark.parametrize(
    ("node_id", "flag"),
    [
        ("shard-node-1", "--cluster-id"),
        ("shard-node-1", "--node-id"),
        ("cluster-manager-1", "--cluster-id"),
    ],
)
def test_a_data_directory_of_another_node_or_cluster_is_refused(
    used: tuple[ClusterPlan, Path], node_id: str, flag: str
) -> None:
    plan, directory = used
    before = tree(directory)

    said = start_refused(plan, node_id, directory, changed={flag: "somebody-else"})

    assert f"data directory {directory / node_id} belongs to" in said
    assert f"{node_id!r} of cluster {plan.cluster_id!r}" in said
    assert "give this process its own directory" in said
    assert tree(directory) == before


def test_a_data_directory_of_another_component_is_refused(used: tuple[ClusterPlan, Path]) -> None:
    plan, directory = used
    before = tree(directory)

    said = start_refused(
        plan,
        "shard-node-1",
        directory,
        changed={"--node-id": "cluster-manager-1", "--data-dir": f"{directory}/cluster-manager-1"},
    )

    assert "belongs to cluster_manager 'cluster-manager-1'" in said
    assert tree(directory) == before


def test_data_without_an_identity_or_with_a_damaged_one_is_refused(
    copied: tuple[ClusterPlan, Path],
) -> None:
    plan, directory = copied
    node_id = "shard-node-1"
    identity = directory / node_id / "identity.json"
    identity.write_bytes(b"{")
    before = tree(directory)
    damaged = start_refused(plan, node_id, directory)
    assert tree(directory) == before
    identity.unlink()
    before = tree(directory)

    missing = start_refused(plan, node_id, directory)

    assert f"{identity} is damaged: restore it from a backup" in damaged
    assert "but no identity.json: use an empty directory" in missing
    assert tree(directory) == before


def test_what_a_node_remembers_of_the_cluster_is_refused_when_damaged(
    copied: tuple[ClusterPlan, Path],
) -> None:
    plan, directory = copied
    known = directory / "shard-node-1" / "cluster.binpb"
    known.write_bytes(b"\xff" + known.read_bytes()[1:])
    before = tree(directory, without=LOCK)

    said = start_refused(plan, "shard-node-1", directory)

    assert f"{known} is damaged: remove it" in said
    assert tree(directory, without=LOCK) == before


@pytest.mark.parametrize("node_id", NODES)
def test_a_journal_of_another_node_is_refused(
    copied: tuple[ClusterPlan, Path], node_id: str
) -> None:
    plan, directory = copied
    group = 1 if node_id == "shard-node-1" else 0
    journal = directory / node_id / f"group-{group}" / "journal"
    other = NODES[1 - NODES.index(node_id)]
    strange = directory / other / f"group-{1 - group}" / "journal"
    shutil.rmtree(journal)
    shutil.copytree(strange, journal)
    before = tree(directory, without=LOCK)

    said = start_refused(plan, node_id, directory)

    assert f"the journal in {journal} belongs to another cluster, node or group" in said
    assert tree(directory, without=LOCK) == before


def test_two_processes_do_not_share_a_data_directory(running: BlockingCluster) -> None:
    free = make_plan_on_free_ports(MINIMAL, cluster_id=running.plan.cluster_id)
    changed = {"--cluster-managers": running.plan.manager_endpoints}

    said = start_refused(free, "shard-node-1", running.cluster.data_dir, changed=changed)

    assert f"is in use by process {running.cluster.process_id('shard-node-1')}" in said
    assert running.cluster.is_running("shard-node-1")


def test_a_node_of_another_cluster_is_turned_away_by_the_manager(
    running: BlockingCluster, tmp_path: Path
) -> None:
    free = make_plan_on_free_ports(MINIMAL, cluster_id="another")
    changed = {"--cluster-managers": running.plan.manager_endpoints}

    for node_id in ("shard-node-1", "discovery-1", "broker-1"):
        said = start_refused(free, node_id, tmp_path, changed=changed)

        assert "every cluster manager refuses this process" in said
        assert "check its --cluster-secret-file, its --cluster-id, and the addresses" in said


@pytest.mark.parametrize(
    ("node_id", "flag", "purpose"),
    [
        ("shard-node-1", "--listen", "the shard service"),
        ("shard-node-1", "--raft-listen", "the Raft mesh"),
        ("cluster-manager-1", "--listen", "gRPC of the cluster manager"),
        ("cluster-manager-1", "--raft-listen", "the Raft mesh"),
        ("discovery-1", "--listen", "discovery over gRPC"),
        ("broker-1", "--listen", "the broker's gRPC service"),
        ("broker-1", "--http-listen", "metrics and health probes"),
    ],
)
def test_a_taken_port_is_named_with_its_purpose(
    tmp_path: Path, node_id: str, flag: str, purpose: str
) -> None:
    plan = make_plan_on_free_ports(MINIMAL)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        said = start_refused(plan, node_id, tmp_path, changed={flag: address})

    assert f"cannot listen on {address}, needed for {purpose}" in said
    assert "stop what listens there or choose another port" in said


@pytest.mark.parametrize(
    ("offset", "purpose", "detach"),
    [
        (0, "gRPC of discovery-1", []),
        (PORTS_PER_NODE + 1, "Raft of cluster-manager-1", []),
        (3 * PORTS_PER_NODE + 2, "metrics and probes of broker-1", ["--detach"]),
    ],
)
def test_up_says_which_port_is_taken_and_what_for(
    tmp_path: Path, offset: int, purpose: str, detach: list[str]
) -> None:
    port_base = make_plan_on_free_ports(MINIMAL).nodes[0].grpc_port
    with socket.create_server(("127.0.0.1", port_base + offset)):
        ended = run_warm(
            "nextgen",
            [
                *("up", "--minimal", *detach),
                *("--data-dir", str(tmp_path), "--port-base", str(port_base)),
            ],
            environment=os.environ,
            timeout_s=60,
        )

    assert ended.returncode == REFUSED
    said = " ".join(ended.stderr.split())
    assert f"cannot listen on 127.0.0.1:{port_base + offset}, needed for {purpose}" in said
    assert not list(tmp_path.glob("*/identity.json")), "nothing was started"


@pytest.mark.parametrize("node_id", EVERY_KIND)
def test_optimised_python_is_refused(tmp_path: Path, node_id: str) -> None:
    plan = make_plan_on_free_ports(MINIMAL)

    said = start_refused(plan, node_id, tmp_path, "-O")

    assert said == "refuses to start under python -O: the assertions guard the data"
    assert tree(tmp_path).keys() == MADE_BY_UP


@pytest.mark.parametrize("node_id", EVERY_KIND)
def test_every_mistake_in_the_flags_is_reported_at_once(tmp_path: Path, node_id: str) -> None:
    plan = make_plan_on_free_ports(MINIMAL)
    changed = {"--listen": "nowhere", "--http-listen": "127.0.0.1:99999", "--node-id": "a/b"}

    said = start_refused(plan, node_id, tmp_path, changed=changed)

    sentences = said.removeprefix("refuses to start: ").split("; ")
    assert "--node-id 'a/b' is not a name of letters, digits, '.', '_' and '-'" in sentences
    for flag in ("--listen", "--http-listen"):
        wrong = f"{flag} has {changed[flag]!r}, it must be host:port, port 1 to 65535"
        assert wrong in sentences
    assert tree(tmp_path).keys() == MADE_BY_UP
