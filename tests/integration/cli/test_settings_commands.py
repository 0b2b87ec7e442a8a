"""Service-level settings change over the Admin REST and by command, without a restart."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from nextgen.kernel.governance.service_settings import DEFAULT_TEXTS
from nextgen.runtime.security.cluster_proof import environment_of_child
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SIZE = ClusterSize(1, 1, 1, brokers=1, shards=1)
SECONDS_MAX = 60.0
SEGMENTS = "scalableTopicMaxSegments"


class Operator:
    """Sends requests and commands to one cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        (self._node,) = cluster.plan.of_kind("discovery")

    async def rest(self, method: str, path: str = "") -> tuple[int, Any]:
        url = f"http://{self._node.http}/admin/v2/brokers/configuration{path}"
        async with aiohttp.ClientSession() as session, session.request(method, url) as answer:
            return answer.status, None if answer.status == 204 else await answer.json()

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        ended = await asyncio.to_thread(
            run_warm,
            "nextgen",
            ["brokers", "settings", *arguments, "--target", self._node.grpc],
            environment=environment_of_child(os.environ),
            timeout_s=SECONDS_MAX,
        )
        return ended.returncode, ended.stdout, ended.stderr

    async def shown(self, *arguments: str) -> dict[str, Any]:
        code, printed, said = await self.run(*arguments, "--json")
        assert code == 0, said
        found: dict[str, Any] = json.loads(printed)
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    async with running_cluster(directory, SIZE) as cluster:
        yield Operator(cluster)


async def test_settings_are_changed_over_rest_as_pulsars_clients_do(operator: Operator) -> None:
    assert await operator.rest("GET") == (200, sorted(DEFAULT_TEXTS))
    assert await operator.rest("GET", "/values") == (200, {})

    assert await operator.rest("POST", f"/{SEGMENTS}/16") == (204, None)

    assert await operator.rest("GET", "/values") == (200, {SEGMENTS: "16"})
    runtime = (await operator.rest("GET", "/runtime"))[1]
    assert {**DEFAULT_TEXTS, SEGMENTS: "16"}.items() <= runtime.items()

    status, refused = await operator.rest("POST", "/scalableTopicMinSegments/17")
    assert (status, refused["reason"]) == (412, f"{SEGMENTS} is 16, at least 17 is needed")
    assert (await operator.rest("POST", "/brokerShutdownTimeoutMs/1"))[0] == 412

    assert await operator.rest("DELETE", f"/{SEGMENTS}") == (204, None)
    assert await operator.rest("GET", "/values") == (200, {})


async def test_settings_are_changed_by_command_together_or_not_at_all(operator: Operator) -> None:
    before = (await operator.shown("list"))["version"]

    code, printed, said = await operator.run(
        "set", f"{SEGMENTS}=4", "scalableTopicMinSegments=4", "loadBalancerEnabled=false"
    )

    assert code == 0, said
    assert f"{SEGMENTS} = 4" in printed
    changed = await operator.shown("list", "--set")
    assert changed["version"] == before + 1
    assert [each["name"] for each in changed["settings"]] == [
        "loadBalancerEnabled",
        SEGMENTS,
        "scalableTopicMinSegments",
    ]
    code, _, said = await operator.run("set", "loadBalancerEnabled=true", f"{SEGMENTS}=3")
    assert (code, f"{SEGMENTS} is 3, at least 4 is needed" in said) == (1, True), said
    code, _, said = await operator.run("set", SEGMENTS)
    assert (code, "is not of the form NAME=VALUE" in said) == (2, True), said
    assert await operator.shown("list", "--set") == changed

    names = [each["name"] for each in changed["settings"]]
    await operator.shown("unset", *names)
    assert (await operator.shown("list", "--set"))["settings"] == []
