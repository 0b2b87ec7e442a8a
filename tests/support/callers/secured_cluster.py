"""A running cluster that asks its clients for tokens, and clients of it."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar

from nextgen.cli.local.local_tokens import KEY_FILE
from tests.support.callers.role_proofs import token_of
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import BlockingCluster


@dataclass
class SecuredCluster:
    """A running cluster and its files."""

    cluster: BlockingCluster
    data_dir: Path

    def token(self, role: str = "ada", **more: Any) -> str:
        return token_of(role, secret=(self.data_dir / KEY_FILE).read_bytes(), **more).decode()

    def pulsar_at(self, kind: str) -> str:
        return "pulsar://" + self.cluster.plan.of_kind(kind)[0].pulsar

    def http(
        self, path: str, token: str | None, method: str = "GET", body: Any = None
    ) -> tuple[int, Any]:
        """Return the status of an answer of the Admin REST, and what its JSON says."""
        address = self.cluster.plan.of_kind("discovery")[0].http
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(
            f"http://{address}{path}", headers=headers, method=method, data=data
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, _json(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _json(error.read())

    def command(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NEXTGEN")}
        return run_warm("nextgen", arguments, environment=kept | environment, timeout_s=90)


def client(service_url: str, token: Any, timeout_s: int = 20) -> pulsar.Client:
    return pulsar.Client(
        service_url,
        authentication=None if token is None else pulsar.AuthenticationToken(token),
        operation_timeout_seconds=timeout_s,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )


def _json(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text.decode()
