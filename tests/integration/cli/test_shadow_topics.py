"""Shadow topics on the command line, over HTTP and through the client, on one cluster."""

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

from nextgen.client import BlockingClient, Client
from nextgen.kernel.errors import Refused
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

    @property
    def grpc(self) -> str:
        return self._node.grpc

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """Return a command's exit code and what it printed: output, errors."""
        ended = await asyncio.to_thread(
            run_warm,
            "nextgen",
            [*arguments, "--target", self._node.grpc],
            environment={**environment_of_child(os.environ), "COLUMNS": "80"},
            timeout_s=COMMAND_S_MAX,
        )
        return ended.returncode, ended.stdout, ended.stderr

    async def done(self, *arguments: str) -> str:
        """Return the output of a command that succeeds."""
        code, output, errors = await self.run(*arguments)
        assert code == ExitCode.DONE, errors
        return output

    async def shown(self, *arguments: str) -> Any:
        """Return the JSON of a command that succeeds."""
        return json.loads(await self.done(*arguments, "--json"))

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        """Return the status and JSON of a request below the path of persistent topics."""
        url = f"http://{self._node.host}:{self._node.http_port}/admin/v2/persistent/{path}"
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


async def test_shadows_are_the_same_on_the_command_line_and_over_http(operator: Operator) -> None:
    source = f"persistent://{NAMESPACE}/source"
    first, second = (f"persistent://{NAMESPACE}/shadow-{number}" for number in (1, 2))
    await operator.done("topics", "create", source, "--partitions", "3")

    output = await operator.done("topics", "create-shadow", first, "--source", source)
    await operator.done("topics", "create-shadow", second, "-s", source, "--unlisted", "-p", "a=b")

    assert output == f"created {first}, a shadow of {source}\n"
    assert (await operator.shown("topics", "get", second))["partitions"] == 3
    assert (await operator.shown("topics", "get-shadow-source", second))["source"] == source
    listed = f"{NAMESPACE}/source/shadowTopics"
    assert await operator.call("GET", listed) == (200, [first])
    await operator.done("topics", "set-shadows", source, second, f"{NAMESPACE}/shadow-1")
    assert await operator.call("GET", listed) == (200, [second, first])
    await operator.done("topics", "remove-shadows", source, second)
    assert (await operator.shown("topics", "get-shadows", source))["shadows"] == [first]
    await operator.done("topics", "remove-shadows", source)
    assert await operator.call("GET", listed) == (204, None)
    output = await operator.done("topics", "get-shadow-source", source)
    assert output == f"{source} is no shadow\n"


async def test_what_is_refused_names_its_reason(operator: Operator) -> None:
    for name in ("plain", "other"):
        await operator.done("topics", "create", f"{NAMESPACE}/{name}")

    for arguments, why in (
        (("create-shadow", f"{NAMESPACE}/s", "-s", f"{NAMESPACE}/absent"), "does not exist"),
        (("set-shadows", f"{NAMESPACE}/plain", f"{NAMESPACE}/other"), "which is no shadow"),
        (("set-shadows", f"{NAMESPACE}/plain", f"{NAMESPACE}/plain"), "the topic itself"),
        (("get-shadow-source", f"{NAMESPACE}/absent"), "does not exist"),
    ):
        code, _, errors = await operator.run("topics", *arguments)
        assert (code, why in errors.replace("\n", " ")) == (ExitCode.REFUSED, True), errors


async def test_both_clients_have_the_same_methods(operator: Operator) -> None:
    source, shadow = (f"persistent://{NAMESPACE}/{name}" for name in ("kept", "kept-shadow"))
    async with Client([operator.grpc]) as client:
        await client.create_topics([source])
        await client.create_shadow(shadow, source)
        assert await client.get_shadows(source) == [shadow]

    def blocking() -> tuple[list[str], str]:
        with BlockingClient([operator.grpc]) as client:
            client.remove_shadows(source)
            client.set_shadows(source, [shadow])
            with pytest.raises(Refused):
                client.create_shadow(shadow, source)
            return client.get_shadows(source), client.get_shadow_source(shadow)

    assert await asyncio.to_thread(blocking) == ([shadow], source)
