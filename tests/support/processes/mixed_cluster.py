"""A cluster of two releases: each process runs from an older tree until it is upgraded."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nextgen.cli.local.plan import ClusterPlan, ClusterSize, NodePlan, make_plan_on_free_ports
from tests.support.processes.local_cluster import LocalCluster

ROOT = Path(__file__).parents[3]


class MixedCluster(LocalCluster):
    """Nodes run the sources of ``older`` until ``upgrade``, with the libraries of this process."""

    def __init__(self, plan: ClusterPlan, data_dir: Path, older: Path) -> None:
        super().__init__(plan, data_dir)
        self._older = older
        self._is_secret_known = "--cluster-secret-file" in (older / "brokers/config.py").read_text()
        self.upgraded: set[str] = set()

    def upgrade(self, node: NodePlan) -> None:
        """Start ``node`` from this tree, from its next start on."""
        self.upgraded.add(node.node_id)

    def command_of(self, node: NodePlan) -> list[str]:
        """Return the command as both releases understand it.

        A release without the cluster secret is replaced as the operations manual introduces one:
        processes that have it accept callers that do not.
        """
        command = super().command_of(node)
        if self._is_secret_known:
            return command
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
        """Return the tree that the running process imports from."""
        environment = Path(f"/proc/{self.process_id(node_id)}/environ").read_bytes()
        paths = [each for each in environment.split(b"\0") if each.startswith(b"PYTHONPATH=")]
        return os.fsdecode(paths[0].removeprefix(b"PYTHONPATH=")).split(os.pathsep)[0]

    @property
    def sources(self) -> set[str]:
        """The trees that the running processes import from."""
        return {self.source_of(node.node_id) for node in self.plan.nodes}


@asynccontextmanager
async def mixed_cluster(
    data_dir: Path, older: Path, size: ClusterSize
) -> AsyncIterator[MixedCluster]:
    """Start a cluster of the older release; stop it at the end, whatever it is by then."""
    plan = make_plan_on_free_ports(size, cluster_id="test")
    async with MixedCluster(plan, data_dir, older) as cluster:
        await cluster.wait_ready()
        assert cluster.sources == {str(older)}
        yield cluster


def older_tree(directory: Path, commit: str) -> Path:
    """Write the sources of a commit of this checkout's history into ``directory``; return it.

    The test is skipped if the history does not have the commit.
    """
    git = ["git", "-C", str(ROOT)]
    known = subprocess.run(
        [*git, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True, check=False
    )
    if known.returncode != 0:
        pytest.skip(f"this checkout's history does not have commit {commit}")
    archive = subprocess.run([*git, "archive", commit], capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
    return directory
