"""Every listener of a running cluster with TLS, and what each kind of stranger gets there.

The tables of ``docs/security.md`` are what these tests find, not what somebody believes.
"""

from __future__ import annotations

import asyncio
import re
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

from nextgen.cli.local.plan import CERTS_FOLDER, TOKENS, NodePlan, make_plan_on_free_ports
from nextgen.cli.local.security import authority_file
from nextgen.pulsar.frames import encode_command
from nextgen.replication.mesh.frames import MESH_PROTOCOL_VERSION, Hello, encode_hello
from nextgen.replication.ports import NodeId
from nextgen.runtime.security.authority import Authority, CertificateRequest
from nextgen.runtime.security.client_token import use_token_file
from nextgen.runtime.security.node_identity import NodeIdentity, NodeRole, role_name
from nextgen.runtime.security.process_tls import tls_in_use, use_tls
from nextgen.runtime.security.tls import client_context
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandConnect
from tests.support.certificates import Certificates
from tests.support.processes.local_cluster import MINIMAL, READY_MS_MAX, LocalCluster

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
HEADINGS = {"": "## What a stranger gets", TOKENS: "### Where clients prove their role"}
"""By a cluster's authentication: where its table is."""

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
FOR_CLIENTS = {
    "broker": "/nextgen.v1.BrokerService/Serves",
    "discovery": "/nextgen.v1.DiscoveryService/GetCluster",
}
"""By kind of process: a call that clients make."""

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


def is_answer(received: bytes) -> bool:
    """Return whether a server sent more than an alert of TLS, by which it tells why it refuses."""
    return len(received) > 7


async def over_https(port: int, context: ssl.SSLContext | None, _kind: str) -> str:
    if not is_answer(await answer_to(port, context, b"GET /livez HTTP/1.0\r\n\r\n")):
        return "nothing"
    answer = await answer_to(port, context, b"GET /admin/v2/tenants HTTP/1.0\r\n\r\n")
    code = answer.split(maxsplit=2)[1]
    assert code in (b"200", b"401", b"404"), code
    return "answers" if code == b"200" else "probes"


async def over_pulsar(port: int, context: ssl.SSLContext | None, _kind: str) -> str:
    connect = CommandConnect(client_version="a stranger", protocol_version=21)
    question = encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=connect))
    answer = await answer_to(port, context, question)
    if not is_answer(answer):
        return "nothing"
    kind = BaseCommand.FromString(answer[8 : 8 + int.from_bytes(answer[4:8], "big")]).type
    assert kind in (BaseCommand.CONNECTED, BaseCommand.ERROR), kind
    return "answers" if kind == BaseCommand.CONNECTED else "refusal"


async def over_raft(port: int, context: ssl.SSLContext | None, kind: str) -> str:
    hello = Hello(MESH_PROTOCOL_VERSION, "local", NodeId(f"{kind}-9"), NodeId(f"{kind}-1"), "i", 1)
    return (
        "answers" if is_answer(await answer_to(port, context, encode_hello(hello))) else "nothing"
    )


async def over_grpc(port: int, strangers: Strangers, stranger: str, kind: str) -> str:
    """Ask for health, make a client's call and one of a node: which of them is answered?"""
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
        for method in (HEALTH, NODES_ONLY[kind], FOR_CLIENTS.get(kind)):
            if method is not None:
                call = channel.unary_unary(method)(b"", timeout=PATIENCE_S)
                codes.append(await call.code())
    refused = grpc.StatusCode.UNAUTHENTICATED
    if set(codes) == {grpc.StatusCode.UNAVAILABLE}:
        return "nothing"
    expected = grpc.StatusCode.UNIMPLEMENTED if kind == "discovery" else refused
    assert codes[:2] == [grpc.StatusCode.OK, expected], codes
    if codes[2:] in ([], [refused]):
        return "health"
    return "clients' calls"


class WithClientPorts(LocalCluster):
    """A cluster whose discovery node has a port for gRPC clients without a certificate."""

    def command_of(self, node: NodePlan) -> list[str]:
        command = super().command_of(node)
        if node.kind != "discovery":
            return command
        # It has no Raft port, so the one that its block of ports keeps for it is free.
        return [*command, "--client-listen", node.raft]


@asynccontextmanager
async def running(directory: Path, authentication: str) -> AsyncIterator[LocalCluster]:
    before = tls_in_use()
    plan = replace(make_plan_on_free_ports(MINIMAL), tls=True, authentication=authentication)
    try:
        async with WithClientPorts(plan, directory) as cluster:
            await cluster.wait_ready(timeout_ms=READY_MS_MAX)
            yield cluster
    finally:
        use_tls(before)
        use_token_file(None)


def documented(authentication: str) -> dict[str, list[str]]:
    """Return a table: by listener, what each stranger gets."""
    table = re.split(r"\n##", DOCUMENT.read_text().split(HEADINGS[authentication])[1])[0]
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
        whose = "discovery" if node.kind == "discovery" else "others"
        by_protocol = {f"HTTPS of {whose}": (node.http_port, over_https)}
        if node.has_raft:
            by_protocol["Raft"] = (node.raft_port, over_raft)
        if node.has_pulsar:
            by_protocol["pulsar+ssl"] = (node.pulsar_port, over_pulsar)
        for place, stranger in enumerate(STRANGERS):
            context = strangers.context(stranger, node.kind)
            for protocol, (port, ask) in by_protocol.items():
                gets = found.setdefault(protocol, [set() for _ in STRANGERS])[place]
                gets.add(await ask(port, context, node.kind))
            whose = "brokers and discovery" if node.kind in FOR_CLIENTS else "others"
            by_port = {f"gRPC of {whose}": node.grpc_port}
            if node.kind == "discovery":
                by_port["gRPC of `--client-listen`"] = node.raft_port
            for name, port in by_port.items():
                gets = found.setdefault(name, [set() for _ in STRANGERS])[place]
                gets.add(await over_grpc(port, strangers, stranger, node.kind))
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
@pytest.mark.parametrize("authentication", HEADINGS)
async def test_each_listener_gives_each_stranger_what_the_document_says(
    tmp_path: Path, authentication: str
) -> None:
    async with running(tmp_path / "cluster", authentication) as cluster:
        for node in cluster.plan.nodes:
            planned = {port for port, _purpose in node.purposes()}
            if node.kind == "discovery":
                planned.add(node.raft_port)
            assert open_ports(cluster.process_id(node.node_id)) == planned, node.node_id

        strangers = Strangers(cluster.data_dir, tmp_path / "elsewhere")
        found = await what_strangers_get(cluster, strangers)

        table = documented(authentication)
        expected = {name: [{cell} for cell in cells] for name, cells in table.items()}
        assert found == expected
