"""A cluster whose servers run the sources of another checkout, or another interpreter."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterPlan, ClusterSize, NodePlan, make_plan_on_free_ports
from nextgen.harness.perf.bench import Bench, make_namespace
from nextgen.runtime.security.cluster_secret import SECRET_FILE, make_cluster_secret

OWN_TREE = Path(__file__).parents[2]
START_TIMEOUT_MS = 120_000


class TreeCluster(LocalCluster):
    """Runs ``tree`` by ``python``, with that interpreter's libraries."""

    def __init__(self, plan: ClusterPlan, data_dir: Path, tree: Path, python: str) -> None:
        super().__init__(plan, data_dir)
        self._tree = tree
        self._python = python

    def command_of(self, node: NodePlan) -> list[str]:
        return [self._python, *super().command_of(node)[1:]]

    def environment_of(self, node: NodePlan) -> dict[str, str]:
        return {**super().environment_of(node), "PYTHONPATH": str(self._tree)}


@asynccontextmanager
async def tree_bench(
    tree: Path, python: str, size: ClusterSize, secret: Path
) -> AsyncIterator[Bench]:
    """Give a measurement a cluster of these sources, with a namespace, as ``bench`` does.

    Clusters that run at once need one ``secret``: a process works for one cluster at a time. The
    file is made if it does not exist.
    """
    data_dir = Path(tempfile.mkdtemp(prefix="nextgen-perf-"))
    try:
        make_cluster_secret(secret)
        shutil.copy(secret, data_dir / SECRET_FILE)
        plan = make_plan_on_free_ports(size)
        async with TreeCluster(plan, data_dir, tree, python) as cluster:
            await cluster.wait_ready(timeout_ms=START_TIMEOUT_MS)
            endpoints = plan.discovery_endpoints
            namespace = await make_namespace(endpoints, data_dir.name[-6:].replace("_", "-"))
            yield Bench(endpoints, namespace, cluster, plan.of_kind("discovery")[0].pulsar)
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)
