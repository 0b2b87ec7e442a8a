"""A node whose certificate was stolen is excluded: it is cut off, and others go on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextgen.client import Client
from nextgen.main import program
from nextgen.tasks.timeouts import timeout
from tests.integration.test_listeners import running
from tests.support.processes.local_cluster import LocalCluster

ENDS_S_MAX = 60


def operator(cluster: LocalCluster, *arguments: str) -> str:
    line = ["cluster", *arguments, "--data-dir", str(cluster.data_dir)]
    outcome = CliRunner().invoke(program("cluster"), line)
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


async def logged(cluster: LocalCluster, text: str) -> None:
    async with timeout(ENDS_S_MAX):
        while text not in cluster.log_path("broker-1").read_text():
            await asyncio.sleep(0.05)


@pytest.mark.timeout(300)
async def test_an_excluded_broker_is_cut_off_at_once_and_never_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path / "cluster", "") as cluster:
        async with Client(cluster.plan.discovery_endpoints) as client:
            await client.create_tenant("acme")
            await client.create_namespace("acme/orders")
            await client.create_topics(["persistent://acme/orders/one"])

            await asyncio.to_thread(operator, cluster, "exclude", "broker-1")

            await logged(cluster, "connection to the broker manager ended")
            await logged(cluster, "refused by the cluster manager")
            async with timeout(ENDS_S_MAX):
                while any(broker.is_live for broker in (await client.cluster()).brokers):
                    await asyncio.sleep(0.05)

            # A restarted node ends as soon as the cluster manager refuses it.
            await cluster.restart("broker-1")
            async with timeout(ENDS_S_MAX):
                while cluster.is_running("broker-1"):
                    await asyncio.sleep(0.05)
            assert "broker-1 is excluded" in cluster.log_path("broker-1").read_text()

            await client.create_topics(["persistent://acme/orders/two"])
        listed = await asyncio.to_thread(operator, cluster, "excluded", "--json")
        assert json.loads(listed) == {"excluded": ["broker-1"]}
