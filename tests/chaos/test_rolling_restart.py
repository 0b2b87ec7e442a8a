"""Every process of a cluster is restarted, or replaced by a later release, while load goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nextgen.cli.local.plan import ClusterSize
from nextgen.kernel.governance.policies import Policies
from tests.support.callers.steady_load import NAMESPACE, SteadyLoad, steady_load
from tests.support.processes.local_cluster import running_cluster
from tests.support.processes.mixed_cluster import ROOT, mixed_cluster, older_tree
from tests.support.processes.rolling import restart_one_by_one

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


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return older_tree(tmp_path_factory.mktemp("older"), OLDER_COMMIT)


async def test_an_older_release_is_replaced_process_by_process(
    older: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Managers first, then shard nodes, discovery, brokers: all the time both releases run."""
    async with mixed_cluster(tmp_path, older, ClusterSize(brokers=2)) as cluster:
        async with steady_load(cluster) as load:
            away_s = await restart_one_by_one(cluster, load, between=cluster.upgrade)
            # Every replica knows such events by now, so nobody holds them back.
            written = await load.client.set_policies(NAMESPACE, Policies(message_ttl_ms=60_000))
        sources = cluster.sources

    report(capsys, "rolling upgrade", load, away_s_max=max(away_s.values()))
    check(load)
    assert sources == {str(ROOT)}
    assert written.version == 2
