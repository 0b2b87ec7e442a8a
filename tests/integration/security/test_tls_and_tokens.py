"""A cluster with TLS on every port that asks its clients for tokens, as ``nextgen up`` makes it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulsar
import pytest
import pytest_asyncio

from nextgen.cli.local.local_tokens import KEY_FILE, TOKEN_FILE, TOKENS
from nextgen.cli.local.plan import MINIMAL, NodePlan, make_plan_on_free_ports
from nextgen.cli.local.security import authority_file
from nextgen.runtime.lifecycle.exit_code import ExitCode
from nextgen.runtime.security.client_token import use_token_file
from nextgen.runtime.security.process_tls import tls_in_use, use_tls
from tests.support.callers.role_proofs import OTHER_SECRET, token_of
from tests.support.certificates import Certificates
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import READY_MS_MAX, LocalCluster

TOPIC = "persistent://public/default/secured"


class Cluster(LocalCluster):
    """Its discovery node has a port for gRPC clients without a certificate."""

    @property
    def discovery(self) -> NodePlan:
        return self.plan.of_kind("discovery")[0]

    @property
    def client_listen(self) -> str:
        # A discovery node has no Raft port, so the one that is kept for it is free.
        return f"localhost:{self.discovery.raft_port}"

    def command_of(self, node: NodePlan) -> list[str]:
        command = super().command_of(node)
        if node.kind != "discovery":
            return command
        return [*command, "--client-listen", node.raft]

    def token(self, role: str = "admin", **more: Any) -> str:
        return token_of(role, secret=(self.data_dir / KEY_FILE).read_bytes(), **more).decode()

    def ask(self, target: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """List namespaces over gRPC, with nothing of the environment but what is given."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NEXTGEN")}
        return run_warm(
            "nextgen",
            ["namespaces", "list", "public", "--json", "--target", target],
            environment=kept | {"NEXTGEN_DATA_DIR": "/nowhere"} | environment,
            timeout_s=90,
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    before = tls_in_use()
    plan = replace(make_plan_on_free_ports(MINIMAL), tls=True, authentication=TOKENS)
    try:
        async with Cluster(plan, tmp_path_factory.mktemp("cluster")) as running:
            await running.wait_ready(timeout_ms=READY_MS_MAX)
            yield running
    finally:
        use_tls(before)
        use_token_file(None)


def stock_client(
    cluster: Cluster, token: str | None, ca_file: Path | None = None, timeout_s: int = 20
) -> pulsar.Client:
    return pulsar.Client(
        cluster.plan.service_url,
        authentication=None if token is None else pulsar.AuthenticationToken(token),
        tls_trust_certs_file_path=str(ca_file or authority_file(cluster.data_dir)),
        tls_validate_hostname=True,
        operation_timeout_seconds=timeout_s,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_a_stock_client_with_the_operators_token_produces_and_consumes(
    cluster: Cluster,
) -> None:
    token = (cluster.data_dir / TOKEN_FILE).read_text().strip()
    client = stock_client(cluster, token)
    try:
        consumer = client.subscribe(TOPIC, "s")
        # Beyond one record of TLS, and one read of a socket.
        for payload in (b"hello", b"x" * 1_000_000):
            client.create_producer(TOPIC).send(payload)
            assert consumer.receive(15_000).data() == payload
    finally:
        client.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_stock_client_that_lacks_the_token_or_trusts_another_authority_gets_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    foreign = Certificates(tmp_path).ca_file

    def produce(token: str | None, ca_file: Path | None) -> None:
        client = stock_client(cluster, token, ca_file, timeout_s=2)
        try:
            with pytest.raises((pulsar.AuthenticationError, pulsar.ConnectError, pulsar.Timeout)):
                client.create_producer(TOPIC)
        finally:
            client.close()

    await asyncio.gather(
        asyncio.to_thread(produce, None, None),
        asyncio.to_thread(produce, token_of("admin", secret=OTHER_SECRET).decode(), None),
        asyncio.to_thread(produce, cluster.token(), foreign),
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_a_grpc_client_without_a_certificate_needs_its_port_the_authority_and_a_token(
    cluster: Cluster,
) -> None:
    discovery = f"localhost:{cluster.discovery.grpc_port}"
    trust = {"NEXTGEN_TLS_CA_FILE": str(authority_file(cluster.data_dir))}
    token = {"NEXTGEN_TOKEN": cluster.token()}

    answered = cluster.ask(cluster.client_listen, **trust, **token)
    assert (answered.returncode, answered.stderr) == (0, "")
    assert "default" in json.dumps(json.loads(answered.stdout))
    without_token = cluster.ask(cluster.client_listen, **trust)
    assert without_token.returncode != 0
    assert "proves its role" in without_token.stderr
    for refused, why in (
        (cluster.ask(cluster.client_listen, **token), "has TLS, and this process has none"),
        (cluster.ask(discovery, **trust, **token), "refuses the certificate of this process"),
    ):
        assert refused.returncode == ExitCode.NO_ANSWER, refused
        assert refused.stdout == ""
        assert why in refused.stderr
