"""An operator of a running cluster: types commands, and sends requests to the Admin REST."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import aiohttp

from nextgen.client import Client
from nextgen.runtime.lifecycle.exit_code import ExitCode
from nextgen.runtime.security.cluster_proof import environment_of_child
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import LocalCluster

NAMESPACE = "acme/orders"
COMMAND_S_MAX = 60
"""Only a failing test waits that long."""


class Operator:
    """Works through the one discovery node of ``cluster``. ``resources`` begins each path of
    ``call``, for example ``persistent``."""

    def __init__(
        self, cluster: LocalCluster, session: aiohttp.ClientSession, resources: str
    ) -> None:
        (self._node,) = cluster.plan.of_kind("discovery")
        self.service_url = cluster.plan.service_url
        self._session = session
        self._resources = resources

    @property
    def grpc(self) -> str:
        return self._node.grpc

    def client(self) -> Client:
        return Client([self.grpc])

    async def make_namespace(self) -> None:
        """Create ``NAMESPACE`` and its tenant."""
        tenant, _, _ = NAMESPACE.partition("/")
        await self.shown("tenants", "create", tenant)
        await self.shown("namespaces", "create", NAMESPACE)

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """Return a command's exit code and what it printed: output, errors."""
        environment = {
            **environment_of_child(os.environ),
            "NEXTGEN_TARGET": self.grpc,
            "COLUMNS": "80",
        }
        ended = await asyncio.to_thread(
            run_warm,
            "nextgen",
            list(arguments),
            environment=environment,
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
        """Return the status and JSON of a request below the path of ``resources``."""
        return await self.admin(method, f"{self._resources}/{path}", **more)

    async def admin(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        """Return the status and JSON of a request to the Admin REST."""
        url = f"http://{self._node.host}:{self._node.http_port}/admin/v2/{path}"
        async with self._session.request(method, url, **more) as answer:
            body = await answer.read()
            return answer.status, json.loads(body) if body else None
