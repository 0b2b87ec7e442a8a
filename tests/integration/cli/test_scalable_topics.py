"""Scalable topics over the Admin REST and the command line, on a cluster of two brokers."""

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

from nextgen.runtime.lifecycle.exit_code import ExitCode
from nextgen.runtime.security.cluster_proof import environment_of_child
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SIZE = ClusterSize(1, 1, 1, brokers=2, shards=2)
NAMESPACE = "acme/orders"
COMMAND_S_MAX = 60
"""Only a failing test waits that long."""


class Operator:
    """Types commands and sends requests."""

    def __init__(self, cluster: LocalCluster, session: aiohttp.ClientSession) -> None:
        (self._node,) = cluster.plan.of_kind("discovery")
        self._session = session

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """Return a command's exit code and what it printed: output, errors."""
        ended = await asyncio.to_thread(
            run_warm,
            "nextgen",
            [*arguments, "--target", self._node.grpc],
            environment={**environment_of_child(os.environ), "COLUMNS": "100"},
            timeout_s=COMMAND_S_MAX,
        )
        return ended.returncode, ended.stdout, ended.stderr

    async def shown(self, *arguments: str) -> Any:
        """Return the JSON of a command that succeeds."""
        code, output, errors = await self.run(*arguments, "--json")
        assert code == ExitCode.DONE, errors
        return json.loads(output)

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        """Return the status and JSON of a request below the path of scalable topics."""
        url = f"http://{self._node.host}:{self._node.http_port}/admin/v2/scalable/{path}"
        async with self._session.request(method, url, **more) as answer:
            body = await answer.read()
            return answer.status, json.loads(body) if body else None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    async with running_cluster(directory, SIZE) as cluster, aiohttp.ClientSession() as session:
        made = Operator(cluster, session)
        await made.shown("tenants", "create", "acme")
        await made.shown("namespaces", "create", NAMESPACE)
        yield made


async def test_a_topic_is_the_same_over_rest_and_on_the_command_line(operator: Operator) -> None:
    code, output, _ = await operator.run(
        *("scalable-topics", "create", f"{NAMESPACE}/paid", "--segments", "2"),
        *("--property", "team=blue"),
    )
    assert (code, output) == (0, "created topic://acme/orders/paid with 2 segments\n")
    assert await operator.call("PUT", f"{NAMESPACE}/due", json={"team": "red"}) == (204, None)

    for query, names in (("team=blue", ["paid"]), ("team=red", ["due"]), ("team=none", [])):
        found = [f"topic://{NAMESPACE}/{name}" for name in names]
        listed = await operator.shown("scalable-topics", "list", NAMESPACE, "--property", query)
        assert [each["name"] for each in listed["topics"]] == found
        assert await operator.call("GET", NAMESPACE, params={"property": query}) == (200, found)

    layout = await operator.shown("scalable-topics", "get", f"topic://{NAMESPACE}/paid")
    _, metadata = await operator.call("GET", f"{NAMESPACE}/paid")
    assert layout["properties"] == metadata["properties"] == {"team": "blue"}
    assert [each["hash_start"] for each in layout["segments"]] == [0, 0x8000]
    assert [each["hashRange"]["start"] for each in metadata["segments"].values()] == [0, 0x8000]
    _, drawn, _ = await operator.run("scalable-topics", "get", f"{NAMESPACE}/paid")
    assert "0      ┣━━━━ 0 ━━━━┣━━━━ 1 ━━━━┫" in drawn.splitlines()


async def test_statistics_name_the_brokers_and_deletion_ends_them(operator: Operator) -> None:
    await operator.shown("scalable-topics", "create", f"{NAMESPACE}/counted", "--segments", "3")

    _, stats = await operator.call("GET", f"{NAMESPACE}/counted/stats")
    documents = await operator.shown("scalable-topics", "stats", f"{NAMESPACE}/counted")

    owners = [each["ownerBroker"] for each in stats["segments"].values()]
    assert set(owners) <= {"broker-1", "broker-2"}
    assert [each["broker_id"] for each in documents["segments"]] == owners
    assert (stats["activeSegments"], stats["producers"], stats["subscriptions"]) == (3, [], {})
    code, segment = await operator.call("GET", f"{NAMESPACE}/counted/segments/2/stats")
    assert (code, segment["msgInCounter"]) == (200, 0)

    code, output, _ = await operator.run("scalable-topics", "delete", f"{NAMESPACE}/counted")
    assert (code, output) == (0, f"deleted topic://{NAMESPACE}/counted\n")
    assert (await operator.call("GET", f"{NAMESPACE}/counted"))[0] == 404


async def test_what_is_refused_is_one_sentence_with_a_code(operator: Operator) -> None:
    await operator.shown("topics", "create", f"{NAMESPACE}/classic")
    for arguments, reason in (
        (("create", f"{NAMESPACE}/classic"), "persistent://acme/orders/classic"),
        (("create", "acme/none/x"), "acme/none"),
        (("get", f"{NAMESPACE}/absent"), f"there is no scalable topic topic://{NAMESPACE}/absent"),
        (("stats", f"{NAMESPACE}/classic"), f"there is no scalable topic topic://{NAMESPACE}"),
        (("delete", f"{NAMESPACE}/absent"), "does not exist"),
        (("list", "acme/none"), "there is no namespace 'acme/none'"),
        (("get", f"persistent://{NAMESPACE}/classic"), "is no scalable topic's name"),
    ):
        code, output, errors = await operator.run("scalable-topics", *arguments)
        assert (code, output, errors.count("\n")) == (ExitCode.REFUSED, "", 1), errors
        assert reason in errors
    for method, path, status in (
        ("PUT", f"{NAMESPACE}/classic", 409),
        ("PUT", f"{NAMESPACE}/x?numInitialSegments=10000", 412),
        ("GET", f"{NAMESPACE}/absent/stats", 404),
        ("DELETE", f"{NAMESPACE}/absent", 404),
    ):
        answer = await operator.call(method, path)
        assert (answer[0], list(answer[1])) == (status, ["reason"])
