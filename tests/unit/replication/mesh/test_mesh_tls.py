"""The Raft mesh over TLS: certificates take the place of the secret."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nextgen.replication.mesh.mesh import Mesh
from nextgen.replication.ports import NodeId
from nextgen.runtime.security.exclusions import excluded, set_excluded
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.security.process_tls import NodeTls
from nextgen.runtime.servers.mesh_tls import NodeMeshTls
from tests.support.certificates import Certificates
from tests.unit.replication.mesh.test_mesh import CHANNEL, HIGH, LOW, Inbox, patient, until


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certs")


@pytest.fixture(autouse=True)
def restored():
    names = excluded()
    yield
    set_excluded(names)


@asynccontextmanager
async def mesh(node_id: NodeId, tls: NodeTls | None) -> AsyncIterator[tuple[Mesh, Inbox]]:
    made = Mesh(node_id, "c", listen_host="127.0.0.1", listen_port=0, tls=NodeMeshTls.of(tls))
    inbox = Inbox()
    made.register(CHANNEL, inbox)
    with patient():
        await made.start()
        try:
            yield made, inbox
        finally:
            await made.stop()


async def introduce(low: Mesh, high: Mesh) -> None:
    await low.set_peer_address(HIGH, "127.0.0.1", high.port)
    await high.set_peer_address(LOW, "127.0.0.1", low.port)


async def test_nodes_with_certificates_of_their_role_and_name_talk(made: Certificates) -> None:
    async with (
        mesh(LOW, made.node(NodeRole.SHARD_NODE, LOW)) as (low, inbox),
        mesh(HIGH, made.node(NodeRole.SHARD_NODE, HIGH)) as (high, _),
    ):
        await introduce(low, high)
        await until(lambda: low.is_connected(HIGH) and high.is_connected(LOW))
        high.send(LOW, CHANNEL, {"n": 1})

        await until(lambda: inbox.messages == [(HIGH, {"n": 1})])
        assert low.unproven_count == 0


async def refuses(
    low_tls: NodeTls | None, high_tls: NodeTls | None, allowed: frozenset[str] = frozenset()
) -> None:
    """Check that the two never connect, however often the second one dials."""
    async with mesh(LOW, low_tls) as (low, inbox), mesh(HIGH, high_tls) as (high, other):
        await introduce(low, high)
        await until(lambda: len(other.happened) >= 3)

        assert not high.is_connected(LOW)
        # An impostor that is dialed believes its caller until that one has seen its certificate.
        assert {happened.partition(" ")[0] for happened in inbox.happened} <= allowed
        assert set(other.happened) == {f"unreachable {LOW}"}


async def test_a_certificate_of_another_role_makes_no_peer(made: Certificates) -> None:
    low, wrong = made.node(NodeRole.CLUSTER_MANAGER, LOW), made.node(NodeRole.SHARD_NODE, HIGH)

    await refuses(low, wrong)


async def test_a_certificate_of_another_node_makes_no_peer(made: Certificates) -> None:
    low, wrong = made.node(NodeRole.SHARD_NODE, LOW), made.node(NodeRole.SHARD_NODE, "node-7")

    await refuses(low, wrong)


async def test_an_acceptor_with_a_certificate_of_another_node_is_left(made: Certificates) -> None:
    wrong, high = made.node(NodeRole.SHARD_NODE, "node-7"), made.node(NodeRole.SHARD_NODE, HIGH)

    await refuses(wrong, high, frozenset({"connected", "disconnected"}))


async def test_another_authority_or_none_at_all_makes_no_peer(
    made: Certificates, tmp_path: Path
) -> None:
    low = made.node(NodeRole.SHARD_NODE, LOW)
    others = Certificates(tmp_path / "others")

    await refuses(low, made.trusting(others.files(NodeRole.SHARD_NODE, HIGH)))
    await refuses(low, None)
    await refuses(None, made.node(NodeRole.SHARD_NODE, HIGH))


async def test_a_stranger_without_a_certificate_is_not_even_read(made: Certificates) -> None:
    async with mesh(LOW, made.node(NodeRole.SHARD_NODE, LOW)) as (low, _):
        context = ssl.create_default_context(cafile=str(made.ca_file))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", low.port, ssl=context, server_hostname="localhost"
        )
        try:
            writer.write(b"x" * 100)
            assert await reader.read() == b""
        except OSError:
            pass  # The alert of TLS, or the end of the connection.
        finally:
            writer.transport.abort()

        assert low.connection_count == 0
        assert low.refused_count == 0, "no connection of the mesh was made for it"


async def test_an_excluded_node_is_disconnected_and_not_taken_again(made: Certificates) -> None:
    async with (
        mesh(LOW, made.node(NodeRole.SHARD_NODE, LOW)) as (low, inbox),
        mesh(HIGH, made.node(NodeRole.SHARD_NODE, HIGH)) as (high, other),
    ):
        await introduce(low, high)
        await until(lambda: low.is_connected(HIGH) and high.is_connected(LOW))

        set_excluded([HIGH])

        await until(lambda: f"disconnected {HIGH}" in inbox.happened)
        await until(lambda: other.happened.count(f"unreachable {LOW}") >= 2)
        assert not low.is_connected(HIGH)
