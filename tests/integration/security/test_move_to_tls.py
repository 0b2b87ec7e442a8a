"""A cluster without TLS gets it: clients one by one, nodes by one stop, and nothing is lost."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import (
    CERTS_FOLDER,
    ClusterPlan,
    ClusterSize,
    NodePlan,
    make_plan_on_free_ports,
)
from nextgen.cli.local.supervise import choose_plan
from nextgen.runtime.security.authority import CA_NAME, Authority, CertificateRequest, cert_file_of
from nextgen.runtime.security.process_tls import tls_in_use, use_tls
from tests.support.processes.local_cluster import READY_MS_MAX

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=2, brokers=2, shards=1)
TOPICS = [f"persistent://public/default/moved-{number}" for number in range(6)]


class Moving(LocalCluster):
    """Gives clients TLS beside what they have, at those of its nodes that are ``moved``."""

    def __init__(self, plan: ClusterPlan, data_dir: Path) -> None:
        super().__init__(plan, data_dir)
        self.moved: set[str] = set()
        Authority.make(data_dir / CERTS_FOLDER, plan.cluster_id).issue(
            "for-clients", CertificateRequest("for-clients", None, ("localhost", "127.0.0.1"))
        )

    def command_of(self, node: NodePlan) -> list[str]:
        command = super().command_of(node)
        if node.node_id not in self.moved:
            return command
        directory = self.data_dir / CERTS_FOLDER
        return [
            *command,
            *("--client-tls-cert-file", str(directory / "for-clients.cert.pem")),
            *("--client-tls-key-file", str(directory / "for-clients.key.pem")),
            *("--client-tls-ca-file", str(cert_file_of(directory, CA_NAME))),
            # Neither has a Raft port, so the one that is kept for it is free.
            *("--pulsar-tls-listen", node.raft, "--pulsar-tls-advertise", node.raft),
        ]

    async def move(self, node_id: str) -> None:
        """Restart a node with both ports, as an operator does with each in turn."""
        self.moved.add(node_id)
        await self.restart(node_id)


@asynccontextmanager
async def stock_client(service_url: str, data_dir: Path) -> AsyncIterator[pulsar.Client]:
    client = pulsar.Client(
        service_url,
        tls_trust_certs_file_path=str(cert_file_of(data_dir / CERTS_FOLDER, CA_NAME)),
        tls_validate_hostname=True,
        operation_timeout_seconds=60,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )
    try:
        yield client
    finally:
        client.close()


def send(client: pulsar.Client, payload: bytes) -> None:
    for topic in TOPICS:
        client.create_producer(topic).send(payload)


def received(client: pulsar.Client) -> list[list[bytes]]:
    """Return every topic's messages from the first."""
    found = []
    for topic in TOPICS:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        found.append([])
        while reader.has_message_available():
            found[-1].append(reader.read_next(60_000).data())
        reader.close()
    return found


@pytest.fixture
def restored() -> Any:
    before = tls_in_use()
    yield
    use_tls(before)


def urls(plan: ClusterPlan, scheme: str, port_of: Callable[[NodePlan], str]) -> list[str]:
    return [f"{scheme}://{port_of(node)}" for node in plan.of_kind("discovery")]


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("restored")
async def test_clients_move_while_the_cluster_runs_and_nodes_by_one_stop(tmp_path: Path) -> None:
    plan = make_plan_on_free_ports(SIZE)
    plain = urls(plan, "pulsar", lambda node: node.pulsar)
    beside = urls(plan, "pulsar+ssl", lambda node: node.raft)
    async with Moving(plan, tmp_path) as cluster:
        await cluster.wait_ready(timeout_ms=READY_MS_MAX)
        async with stock_client(plain[0], tmp_path) as old:
            send(old, b"before")
            # Brokers first: a client with TLS is sent to any of them.
            for number, node in enumerate((*plan.of_kind("broker"), *plan.of_kind("discovery"))):
                await cluster.move(node.node_id)
                send(old, b"step %d" % number)
        for url in (*plain, *beside):
            async with stock_client(url, tmp_path) as client:
                send(client, b"either")
    steps = [b"step %d" % number for number in range(4)]
    expected = [b"before", *steps, *[b"either"] * 4]

    moved = choose_plan(tmp_path, minimal=False, shards=None, port_base=None, tls=True)
    async with LocalCluster(moved, tmp_path) as cluster:
        await cluster.wait_ready(timeout_ms=READY_MS_MAX)
        for url in urls(moved, "pulsar+ssl", lambda node: node.pulsar):
            async with stock_client(url, tmp_path) as client:
                assert received(client) == [expected] * len(TOPICS)
