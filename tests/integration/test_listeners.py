"""Every listener of a running cluster with TLS, and what each kind of stranger gets there.

The table of ``docs/security.md`` is what these tests find, not what somebody believes.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest

from nextgen.cli.local.plan import CERTS_FOLDER, make_plan_on_free_ports
from nextgen.cli.local.security import authority_file
from nextgen.pulsar.frames import encode_command
from nextgen.replication.mesh.frames import MESH_PROTOCOL_VERSION, Hello, encode_hello
from nextgen.replication.ports import NodeId
from nextgen.runtime.security.authority import Authority, CertificateRequest
from nextgen.runtime.security.node_identity import NodeIdentity, NodeRole, role_name
from nextgen.runtime.security.process_tls import tls_in_use, use_tls
from nextgen.runtime.security.tls import client_context
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandConnect
from tests.support.certificates import Certificates
from tests.support.processes.local_cluster import MINIMAL, READY_MS_MAX, LocalCluster

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
HEADING = "## What a stranger gets"
STRANGERS = ("plain TCP", "no certificate", "other authority", "client certificate", "other role")
PATIENCE_S = 30

HEALTH = "/grpc.health.v1.Health/Check"
NODES_ONLY = {
    "cluster-manager": "/nextgen.v1.ClusterService/LeaseCapacity",
    "shard-node": "/nextgen.v1.BrokerSessionService/Connect",
    "broker": "/nextgen.v1.TopicAdmin/GetStats",
    "discovery": "/nextgen.v1.ShardService/Exchange",
}
"""By kind of process: a call that a discovery node, or at a broker a cluster manager, may not
make."""

Credentials = tuple[Path, Path] | None


class Strangers:
    """The certificates with which strangers come."""

    def __init__(self, data_dir: Path, elsewhere: Path) -> None:
        self.ca_file = authority_file(data_dir)
        authority = Authority.load(data_dir / CERTS_FOLDER)
        client = authority.issue("some-client", CertificateRequest("some-client"))
        roles = {}
        for role in (NodeRole.DISCOVERY, NodeRole.CLUSTER_MANAGER):
            name = f"stolen-{role}"
            identity = NodeIdentity(authority.cluster_id, role, name)
            roles[role] = authority.issue(name, CertificateRequest(name, identity))
        foreign = Certificates(elsewhere, authority.cluster_id).files(NodeRole.OPERATOR, "me")
        self._files: dict[str, Credentials] = {
            "no certificate": None,
            "other authority": (foreign.cert_file, foreign.key_file),
            "client certificate": (client.cert_file, client.key_file),
        }
        self._roles = {role: (one.cert_file, one.key_file) for role, one in roles.items()}

    def files(self, stranger: str, kind: str) -> Credentials:
        if stranger != "other role":
            return self._files[stranger]
        return self._roles[
            NodeRole.CLUSTER_MANAGER if kind in ("broker", "discovery") else NodeRole.DISCOVERY
        ]

    def context(self, stranger: str, kind: str) -> ssl.SSLContext | None:
        if stranger == "plain TCP":
            return None
        context = client_context(self.ca_file)
        files = self.files(stranger, kind)
        if files is not None:
            context.load_cert_chain(*files)
        return context


async def answer_to(port: int, context: ssl.SSLContext | None, question: bytes) -> bytes:
    """Connect, send a question, and return what the server sends; b"" if it refuses."""
    writer = None
    try:
        async with timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname="localhost" if context else None
            )
            writer.write(question)
            return await reader.read(4_096)
    except OSError:
        return b""
    finally:
        if writer is not None:
            writer.transport.abort()


def word_of(answer: bytes) -> str:
    # Seven bytes: an alert of TLS, by which a server tells why it refuses.
    return "answers" if len(answer) > 7 else "nothing"


async def over_https(port: int, context: ssl.SSLContext | None, _kind: str) -> str:
    return word_of(await answer_to(port, context, b"GET /livez HTTP/1.0\r\n\r\n"))


async def over_pulsar(port: int, context: ssl.SSLContext | None, _kind: str) -> str:
    connect = CommandConnect(client_version="a stranger", protocol_version=21)
    question = encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=connect))
    return word_of(await answer_to(port, context, question))


async def over_raft(port: int, context: ssl.SSLContext | None, kind: str) -> str:
    hello = Hello(MESH_PROTOCOL_VERSION, "local", NodeId(f"{kind}-9"), NodeId(f"{kind}-1"), "i", 1)
    return word_of(await answer_to(port, context, encode_hello(hello)))


async def over_grpc(port: int, strangers: Strangers, stranger: str, kind: str) -> str:
    """Make an open call and one that is for others: which of them is answered?"""
    options = [("grpc.ssl_target_name_override", role_name("local", None))]
    if stranger == "plain TCP":
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    else:
        files = strangers.files(stranger, kind)
        cert, key = (None, None) if files is None else (each.read_bytes() for each in files)
        credentials = grpc.ssl_channel_credentials(strangers.ca_file.read_bytes(), key, cert)
        channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options)
    async with channel:
        codes = []
        for method in (HEALTH, NODES_ONLY[kind]):
            call = channel.unary_unary(method)(b"", timeout=PATIENCE_S)
            codes.append(await call.code())
    unavailable, refused = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED
    not_there = grpc.StatusCode.UNIMPLEMENTED
    if codes == [unavailable, unavailable]:
        return "nothing"
    expected = not_there if kind == "discovery" else refused
    assert codes == [grpc.StatusCode.OK, expected], codes
    return "open calls"


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[LocalCluster]:
    before = tls_in_use()
    plan = replace(make_plan_on_free_ports(MINIMAL), tls=True)
    try:
        async with LocalCluster(plan, directory) as cluster:
            await cluster.wait_ready(timeout_ms=READY_MS_MAX)
            yield cluster
    finally:
        use_tls(before)


def documented() -> dict[str, list[str]]:
    """Return the table: by listener, what each stranger gets."""
    table = DOCUMENT.read_text().split(HEADING)[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in table.splitlines()
        if line.startswith("|")
    ]
    assert rows[0][1:] == list(STRANGERS)
    return {row[0]: row[1:] for row in rows[2:]}


async def what_strangers_get(
    cluster: LocalCluster, strangers: Strangers
) -> dict[str, list[set[str]]]:
    found: dict[str, list[set[str]]] = {}
    for node in cluster.plan.nodes:
        by_protocol = {"HTTPS": (node.http_port, over_https)}
        if node.has_raft:
            by_protocol["Raft"] = (node.raft_port, over_raft)
        if node.has_pulsar:
            by_protocol["pulsar+ssl"] = (node.pulsar_port, over_pulsar)
        for place, stranger in enumerate(STRANGERS):
            context = strangers.context(stranger, node.kind)
            for protocol, (port, ask) in by_protocol.items():
                gets = found.setdefault(protocol, [set() for _ in STRANGERS])[place]
                gets.add(await ask(port, context, node.kind))
            gets = found.setdefault("gRPC", [set() for _ in STRANGERS])[place]
            gets.add(await over_grpc(node.grpc_port, strangers, stranger, node.kind))
    return found


_OPEN_PORTS = """
import sys, psutil
root = psutil.Process(int(sys.argv[1]))
for process in (root, *root.children(recursive=True)):
    for connection in process.net_connections("inet"):
        if connection.status == psutil.CONN_LISTEN:
            print(connection.laddr.port)
"""
"""In a process of its own: pysyncobj replaces ``socket.inet_ntop``, which psutil needs, by one that
works on Windows only."""


def open_ports(pid: int | None) -> set[int]:
    assert pid is not None
    command = [sys.executable, "-c", _OPEN_PORTS, str(pid)]
    return set(map(int, subprocess.run(command, capture_output=True, check=True).stdout.split()))


@pytest.mark.timeout(300)
async def test_each_listener_gives_each_stranger_what_the_document_says(tmp_path: Path) -> None:
    async with running(tmp_path / "cluster") as cluster:
        for node in cluster.plan.nodes:
            planned = {port for port, _purpose in node.purposes()}
            assert open_ports(cluster.process_id(node.node_id)) == planned, node.node_id

        strangers = Strangers(cluster.data_dir, tmp_path / "elsewhere")
        found = await what_strangers_get(cluster, strangers)

        expected = {name: [{cell} for cell in cells] for name, cells in documented().items()}
        assert found == expected
