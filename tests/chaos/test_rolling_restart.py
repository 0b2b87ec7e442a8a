"""Every process of a cluster is restarted, or replaced by a later release, while load goes on."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterPlan, ClusterSize, NodePlan, make_plan_on_free_ports
from nextgen.kernel.governance.policies import Policies
from tests.support.local_cluster import running_cluster
from tests.support.rolling import restart_one_by_one
from tests.support.steady_load import NAMESPACE, SteadyLoad, steady_load

ROOT = Path(__file__).parents[2]
OLDER_COMMIT = "1673976"
"""The last one before fallbacks to binaries of before 0.1.0 went."""

STOOD_STILL_MS = 5_000
"""A busy machine makes gaps longer than they are; beyond this something stood still."""

pytestmark = pytest.mark.timeout(300)


def report(capsys: pytest.CaptureFixture[str], what: str, load: SteadyLoad, **more: Any) -> None:
    with capsys.disabled():
        print(json.dumps({"what": what, **load.summary(), "lost": 0, **more}))


def check(load: SteadyLoad) -> None:
    assert load.errors == []
    assert load.creates.gap_ms_max < STOOD_STILL_MS
    assert load.lookups.gap_ms_max < STOOD_STILL_MS


async def test_every_process_is_restarted_and_no_request_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_cluster(tmp_path, ClusterSize(brokers=2)) as cluster:
        before = {node.node_id: cluster.process_id(node.node_id) for node in cluster.plan.nodes}
        async with steady_load(cluster) as load:
            away_s = await restart_one_by_one(cluster, load)
        after = {node.node_id: cluster.process_id(node.node_id) for node in cluster.plan.nodes}

    report(capsys, "rolling restart", load, away_s_max=max(away_s.values()))
    check(load)
    assert all(after[node_id] not in (None, process) for node_id, process in before.items())


class MixedCluster(LocalCluster):
    """A cluster of two releases: nodes run from ``older`` until they are upgraded."""

    def __init__(self, plan: ClusterPlan, data_dir: Path, older: Path) -> None:
        super().__init__(plan, data_dir)
        self._older = older
        self.upgraded: set[str] = set()

    def upgrade(self, node: NodePlan) -> None:
        self.upgraded.add(node.node_id)

    def command_of(self, node: NodePlan) -> list[str]:
        """The earlier release is given no cluster secret, and the later one takes it in all the
        same: as the operations manual introduces a secret."""
        command = super().command_of(node)
        if node.node_id in self.upgraded:
            return [*command, "--cluster-secret-required", "false"]
        at = command.index("--cluster-secret-file")
        return command[:at] + command[at + 2 :]

    def environment_of(self, node: NodePlan) -> dict[str, str]:
        environment = super().environment_of(node)
        if node.node_id in self.upgraded:
            return environment
        return {**environment, "PYTHONPATH": str(self._older)}

    def source_of(self, node_id: str) -> str:
        """Return where the process that runs imports from."""
        environment = Path(f"/proc/{self.process_id(node_id)}/environ").read_bytes()
        paths = [each for each in environment.split(b"\0") if each.startswith(b"PYTHONPATH=")]
        return os.fsdecode(paths[0].removeprefix(b"PYTHONPATH=")).split(os.pathsep)[0]


@pytest.fixture(scope="module")
def older_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the sources of an earlier release, as the history of this checkout has them."""
    git = ["git", "-C", str(ROOT)]
    known = subprocess.run(
        [*git, "cat-file", "-e", f"{OLDER_COMMIT}^{{commit}}"], capture_output=True, check=False
    )
    if known.returncode != 0:
        pytest.skip(f"this checkout's history does not have commit {OLDER_COMMIT}")
    tree = tmp_path_factory.mktemp("older")
    archive = subprocess.run([*git, "archive", OLDER_COMMIT], capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    return tree


@asynccontextmanager
async def older_cluster(data_dir: Path, older: Path) -> AsyncIterator[MixedCluster]:
    size = ClusterSize(brokers=2)
    plan = make_plan_on_free_ports(size, cluster_id="test")
    async with MixedCluster(plan, data_dir, older) as cluster:
        await cluster.wait_ready()
        yield cluster


async def test_an_older_release_is_replaced_process_by_process(
    older_tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Managers first, then shard nodes, discovery, brokers: all the time both releases run."""
    async with older_cluster(tmp_path, older_tree) as cluster:
        assert {cluster.source_of(node.node_id) for node in cluster.plan.nodes} == {str(older_tree)}
        async with steady_load(cluster) as load:
            away_s = await restart_one_by_one(cluster, load, between=cluster.upgrade)
            # Every replica knows such events by now, so nobody holds them back.
            written = await load.client.set_policies(NAMESPACE, Policies(message_ttl_ms=60_000))
        sources = {cluster.source_of(node.node_id) for node in cluster.plan.nodes}

    report(capsys, "rolling upgrade", load, away_s_max=max(away_s.values()))
    check(load)
    assert sources == {str(ROOT)}
    assert written.version == 2
