"""A cluster of an earlier release is replaced process by process, while clients of all kinds work.

    OLD=path or commit[,…] pytest tests/chaos/test_rolling_upgrade.py

Without ``OLD`` the releases are commits of this checkout's history.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from nextgen.cli.local.plan import ClusterSize
from nextgen.kernel.events.levels import EVENT_LEVEL
from nextgen.replication.mesh.event_levels_file import EventLevelsFile
from nextgen.storage.disk import DiskStorage
from nextgen.tasks.timeouts import timeout
from tests.support.callers.steady_load import steady_load
from tests.support.callers.upgrade_load import upgrade_load
from tests.support.processes.mixed_cluster import ROOT, MixedCluster, mixed_cluster, older_tree
from tests.support.processes.rolling import ORDER, in_order, restart_one_by_one

RELEASES = (os.environ.get("OLD") or "e8462bf,bd76f3c").split(",")
"""One with this cluster secret and event level, and one that is older than both."""

CASES = [*((release, ORDER) for release in RELEASES), (RELEASES[0], ORDER[::-1])]
"""Each release in the order of the operations manual, the first one in the reverse order too."""

IDS = [f"{Path(release).name}-{order[0]}-first" for release, order in CASES]

SIZE = ClusterSize(brokers=3)
TOGETHER = 3
"""Times that each kind of work has to go on while half of the processes are of each release."""

LEVELS_S_MAX = 30

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]


@pytest.fixture
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (tree := Path(request.param)).is_dir():
        return tree.absolute()
    return older_tree(tmp_path_factory.mktemp("older"), request.param)


@pytest.mark.parametrize(("older", "order"), CASES, indirect=["older"], ids=IDS)
async def test_an_earlier_release_is_replaced_under_load_and_nothing_is_lost(
    older: Path, order: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with mixed_cluster(tmp_path, older, SIZE) as cluster:
        nodes = in_order(cluster.plan, order)
        half = len(nodes) // 2
        async with steady_load(cluster) as steady, upgrade_load(cluster, steady) as load:
            await load.progress()
            before = levels(cluster)
            await restart_one_by_one(cluster, load, nodes=nodes[:half], between=cluster.upgrade)
            assert cluster.sources == {str(older), str(ROOT)}
            for _ in range(TOGETHER):
                await load.progress()
            await restart_one_by_one(cluster, load, nodes=nodes[half:], between=cluster.upgrade)
            await wait_levels(cluster)
        sources = cluster.sources

    with capsys.disabled():
        print(json.dumps({"what": "rolling upgrade", "levels_before": before, **load.summary()}))
    assert sources == {str(ROOT)}
    assert steady.errors == []
    assert load.errors == []
    assert load.resets == {}, "a watch missed changes"


def levels(cluster: MixedCluster) -> list[int]:
    """Return the event levels that processes with a log know of each other."""
    known: set[int] = set()
    for node in (node for node in cluster.plan.nodes if node.has_raft):
        known |= set(
            EventLevelsFile(DiskStorage(), cluster.data_dir / node.node_id).load().values()
        )
    return sorted(known)


async def wait_levels(cluster: MixedCluster) -> None:
    """Return when every process knows of each other one that it has the level of this release."""
    async with timeout(LEVELS_S_MAX):
        while levels(cluster) != [EVENT_LEVEL]:
            await asyncio.sleep(0.2)
