"""Who is taken in at the Raft port, with a secret and without, and what a stranger costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import msgpack
import pytest

from nextgen.kernel.limits.cluster import MESH_CONNECTIONS_MAX, NODE_ID_BYTES_MAX
from nextgen.kernel.limits.raft import (
    CLUSTER_ID_BYTES_MAX,
    MESH_HANDSHAKES_MAX,
    MESH_HELLO_FRAME_BYTES_MAX,
    MESH_INCARNATION_BYTES_MAX,
    MESH_PEERS_REMEMBERED_MAX,
    MESH_REASON_CHARACTERS_MAX,
)
from nextgen.replication.mesh.frames import (
    HELLO_CHANNEL,
    HELLO_MAGIC,
    MESH_PROTOCOL_VERSION,
    FrameReader,
    Hello,
    RemoteProtocolError,
    decode_frame,
    encode_frame,
    encode_hello,
    parse_hello,
)
from nextgen.replication.mesh.handshake import (
    NONCE_BYTES,
    ClusterSecret,
    Handshake,
    MeshTls,
    Peer,
)
from nextgen.replication.mesh.mesh import Mesh
from nextgen.replication.ports import NodeId
from nextgen.tasks.timeouts import timeout
from tests.unit.replication.mesh.test_mesh import (
    CHANNEL,
    HIGH,
    LOW,
    PATIENCE_S,
    Inbox,
    introduce,
    patient,
    said,
    say_and_wait_for_the_end,
    until,
)

KEY = ClusterSecret(b"k" * 32)
LENIENT = ClusterSecret(b"k" * 32, is_required=False)
OTHER_KEY = ClusterSecret(b"o" * 32)
OTHER_LENIENT = ClusterSecret(b"o" * 32, is_required=False)
STRANGER = NodeId("node-9")
NOBODY_LISTENS = 1
"""A port."""


# Without sockets ---------------------------------------------------------------------------------


@dataclass
class Owner:
    """A process as a handshake sees it."""

    node_id: NodeId
    secret: ClusterSecret | None = None
    cluster_id: str = "c"
    tls: MeshTls | None = None
    refused: list[str] = field(default_factory=list)

    def hello_to(self, target_id: NodeId) -> Hello:
        return Hello(MESH_PROTOCOL_VERSION, self.cluster_id, self.node_id, target_id, "i")

    def check_hello(self, hello: Hello, dialed: NodeId | None) -> None:
        if (hello.cluster_id, hello.target_id) != (self.cluster_id, self.node_id):
            raise RemoteProtocolError("not meant for this process")

    def check_peer(self, peer: Peer) -> None:
        pass


def nonces(letter: str) -> Callable[[int], bytes]:
    return lambda count: letter.encode() * count


def bodies(stream: bytes) -> Sequence[bytes]:
    return FrameReader().receive_data(stream)


def shake_hands(
    dialer: Owner,
    acceptor: Owner,
    on_the_way: Callable[[int, bytes], bytes] = lambda _step, frame: frame,
) -> tuple[Peer | None, Peer | None]:
    """Return what each side made of the other; ``on_the_way`` sees and changes each frame."""
    one = Handshake(dialer, acceptor.node_id, nonces("d"))
    other = Handshake(acceptor, None, nonces("a"))
    taken: dict[str, Peer | None] = {"dialer": None, "acceptor": None}
    frame, step, to_acceptor = one.open(), 0, True
    while frame:
        (body,) = bodies(on_the_way(step, frame))
        name, side = ("acceptor", other) if to_acceptor else ("dialer", one)
        frame, peer = side.receive(body)
        taken[name] = taken[name] or peer
        step, to_acceptor = step + 1, not to_acceptor
    return taken["dialer"], taken["acceptor"]


@pytest.mark.parametrize(
    ("dialer", "acceptor", "is_proven"),
    [
        (None, None, False),
        (KEY, KEY, True),
        (LENIENT, KEY, True),
        (KEY, LENIENT, True),
        (LENIENT, LENIENT, True),
        (LENIENT, None, False),
        (None, LENIENT, False),
        (OTHER_LENIENT, LENIENT, False),  # A secret is changed, node by node.
    ],
)
def test_nodes_that_may_meet_know_each_other_afterwards(
    dialer: ClusterSecret | None, acceptor: ClusterSecret | None, is_proven: bool
) -> None:
    low, high = Owner(LOW, acceptor), Owner(HIGH, dialer)

    of_dialer, of_acceptor = shake_hands(high, low)

    assert of_dialer == Peer(low.hello_to(HIGH), is_proven)
    assert of_acceptor == Peer(high.hello_to(LOW), is_proven)


@pytest.mark.parametrize(
    ("dialer", "acceptor", "complaint"),
    [
        (None, KEY, "node-2 does not prove"),
        (KEY, None, "node-1 does not prove"),
        (OTHER_KEY, KEY, "node-2 does not prove"),
        (OTHER_LENIENT, KEY, "node-2 does not prove"),
        (KEY, OTHER_LENIENT, "node-1 does not prove"),
    ],
)
def test_nodes_of_which_one_has_no_secret_or_another_are_refused(
    dialer: ClusterSecret | None, acceptor: ClusterSecret | None, complaint: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        shake_hands(Owner(HIGH, dialer), Owner(LOW, acceptor))


def test_the_acceptor_has_to_prove_the_secret_too() -> None:
    def forged(step: int, frame: bytes) -> bytes:
        return frame if step < 3 else encode_hello(Owner(LOW).hello_to(HIGH), proof=bytes(32))

    with pytest.raises(RemoteProtocolError, match="node-1 does not prove"):
        shake_hands(Owner(HIGH, KEY), Owner(LOW, KEY), forged)


def test_a_challenge_cannot_be_left_out_by_the_one_that_was_challenged() -> None:
    def skipped(step: int, frame: bytes) -> bytes:
        return frame if step < 2 else encode_hello(Owner(HIGH).hello_to(LOW))

    with pytest.raises(RemoteProtocolError, match="lacks a valid proof"):
        shake_hands(Owner(HIGH, LENIENT), Owner(LOW, LENIENT), skipped)


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_a_proof_of_another_handshake_is_worth_nothing(step: int) -> None:
    """Between the same two nodes, with one nonce of either side that differs."""
    earlier: list[bytes] = []
    shake_hands(Owner(HIGH, KEY), Owner(LOW, KEY), lambda _, frame: earlier.append(frame) or frame)
    flipped = earlier[step][:-1] + bytes([earlier[step][-1] ^ 1])

    with pytest.raises(RemoteProtocolError, match="does not prove the cluster's secret"):
        shake_hands(
            Owner(HIGH, KEY), Owner(LOW, KEY), lambda at, frame: flipped if at == step else frame
        )


def test_a_proof_of_one_direction_is_worth_nothing_in_the_other() -> None:
    proofs: list[bytes] = []

    def note(_step: int, frame: bytes) -> bytes:
        _, message = decode_frame(*bodies(frame))
        proofs.extend([message["proof"]] if "proof" in message else [])
        return frame

    shake_hands(Owner(HIGH, KEY), Owner(LOW, KEY), note)

    assert len(set(proofs)) == 2


def test_a_nonce_is_not_used_for_a_second_connection() -> None:
    made: list[bytes] = []

    def make(count: int) -> bytes:
        made.append(bytes([len(made)]) * count)
        return made[-1]

    opened = {Handshake(Owner(HIGH, KEY), LOW, make).open() for _ in range(2)}

    assert (len(made), len(opened)) == (2, 2)


def test_a_hello_without_a_secret_is_that_of_earlier_releases() -> None:
    """Byte for byte: a rolling upgrade meets releases that know no secret."""
    hello = Owner(HIGH).hello_to(LOW)
    (body,) = bodies(Handshake(Owner(HIGH), LOW, nonces("d")).open())

    assert decode_frame(body) == (
        HELLO_CHANNEL,
        {
            "magic": HELLO_MAGIC,
            "protocol_version": hello.protocol_version,
            "cluster_id": "c",
            "node_id": HIGH,
            "target_id": LOW,
            "incarnation": "i",
            "event_level": hello.event_level,
        },
    )


@pytest.mark.parametrize("nonce", [b"", b"short", b"x" * (NONCE_BYTES + 1), "text", 7, None])
def test_a_nonce_of_another_form_is_refused(nonce: object) -> None:
    hello = encode_hello(Owner(HIGH).hello_to(LOW), nonce=nonce)  # type: ignore[arg-type]

    with pytest.raises(RemoteProtocolError, match="lacks a valid nonce"):
        Handshake(Owner(LOW, KEY), None, nonces("a")).receive(*bodies(hello))


def test_a_frame_of_a_group_is_no_handshake() -> None:
    handshake = Handshake(Owner(LOW), None, nonces("a"))

    with pytest.raises(RemoteProtocolError, match="not a hello"):
        handshake.receive(*bodies(encode_frame(CHANNEL, {"type": "append"})))


def test_the_secret_is_not_shown() -> None:
    assert "kkkk" not in repr(KEY)


def hello_with(**changed: object) -> dict[str, object]:
    fields = ("cluster_id", "node_id", "target_id", "incarnation")
    return {"magic": HELLO_MAGIC, "protocol_version": 1, **dict.fromkeys(fields, "x"), **changed}


@pytest.mark.parametrize(
    ("name", "bytes_max"),
    [
        ("cluster_id", CLUSTER_ID_BYTES_MAX),
        ("node_id", NODE_ID_BYTES_MAX),
        ("target_id", NODE_ID_BYTES_MAX),
        ("incarnation", MESH_INCARNATION_BYTES_MAX),
    ],
)
def test_cluster_id_bytes_max_and_mesh_incarnation_bytes_max_are_taken_and_one_more_refused(
    name: str, bytes_max: int
) -> None:
    parse_hello(HELLO_CHANNEL, hello_with(**{name: "x" * bytes_max}))

    for wrong in ("x" * (bytes_max + 1), "é" * (bytes_max // 2 + 1), ""):
        with pytest.raises(RemoteProtocolError, match=f"lacks a valid {name}"):
            parse_hello(HELLO_CHANNEL, hello_with(**{name: wrong}))


@pytest.mark.parametrize("text", ["a\nWARNING forged", "\x1b[2J", "\u202e", "\0"])
@pytest.mark.parametrize("name", ["cluster_id", "node_id", "target_id", "incarnation"])
def test_a_hello_whose_texts_cannot_be_printed_is_refused(name: str, text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="cannot be printed"):
        parse_hello(HELLO_CHANNEL, hello_with(**{name: text}))


# On loopback -------------------------------------------------------------------------------------


@asynccontextmanager
async def mesh(
    node_id: NodeId, secret: ClusterSecret | None = None
) -> AsyncIterator[tuple[Mesh, Inbox]]:
    made = Mesh(node_id, "c", listen_host="127.0.0.1", listen_port=0, secret=secret)
    inbox = Inbox()
    with patient():
        await made.start()
        made.register(CHANNEL, inbox)
        try:
            yield made, inbox
        finally:
            await made.stop()


def hello(node_id: NodeId, incarnation: str = "x") -> bytes:
    return encode_hello(Hello(MESH_PROTOCOL_VERSION, "c", node_id, LOW, incarnation))


@asynccontextmanager
async def dialed(made: Mesh, first: bytes = b"") -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
    writer.write(first)
    try:
        yield reader
    finally:
        writer.transport.abort()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


@pytest.mark.parametrize("secret", [None, KEY])
async def test_two_nodes_connect_and_messages_behind_the_handshake_arrive(
    secret: ClusterSecret | None,
) -> None:
    async with mesh(LOW, secret) as (low, low_inbox), mesh(HIGH, secret) as (high, high_inbox):
        await introduce(low, LOW, high, HIGH)
        await until(lambda: low.is_connected(HIGH) and high.is_connected(LOW))

        low.send(HIGH, CHANNEL, {"body": bytes(100_000)})
        high.send(LOW, CHANNEL, {"body": b"b"})

        await until(lambda: bool(low_inbox.messages and high_inbox.messages))
        assert high_inbox.messages == [(LOW, {"body": bytes(100_000)})]


async def test_a_node_that_is_not_known_yet_is_taken_in_if_it_proves_the_secret() -> None:
    """The cluster manager may be away, and what it said before may be out of date."""
    async with mesh(LOW, KEY) as (low, _), mesh(HIGH, KEY) as (high, _):
        await high.set_peer_address(LOW, "127.0.0.1", low.port)

        await until(lambda: low.is_connected(HIGH) and high.is_connected(LOW))


@pytest.mark.parametrize(
    ("secret", "node_id", "complaint"),
    [
        (KEY, HIGH, "node-2 does not prove the cluster's secret"),
        (KEY, STRANGER, "node-9 does not prove the cluster's secret"),
        (LENIENT, STRANGER, "node-9 is no node that this process knows"),
        (None, STRANGER, "node-9 is no node that this process knows"),
    ],
)
async def test_a_stranger_that_knows_the_cluster_id_is_answered_with_nothing(
    secret: ClusterSecret | None,
    node_id: NodeId,
    complaint: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with mesh(LOW, secret) as (low, inbox):
        await low.set_peer_address(HIGH, "127.0.0.1", NOBODY_LISTENS)
        frame = encode_frame(CHANNEL, {"type": "append"})

        answer = await say_and_wait_for_the_end(low.port, hello(node_id) + frame)

        assert answer == b""
        assert inbox.messages == []
        assert not low.is_connected(node_id)
        assert low.refused_count == 1
        assert low.peer_event_level(node_id) == 1
        assert complaint in caplog.text


async def test_one_that_was_challenged_learns_nothing_but_a_nonce() -> None:
    async with mesh(LOW, KEY) as (low, _):
        first = encode_hello(
            Hello(MESH_PROTOCOL_VERSION, "c", HIGH, LOW, "x"), nonce=bytes(NONCE_BYTES)
        )
        forged = encode_frame(HELLO_CHANNEL, {"proof": bytes(32)})

        answer = await say_and_wait_for_the_end(low.port, first + forged)

        (body,) = bodies(answer)
        assert list(decode_frame(body)[1]) == ["challenge"]


@pytest.mark.parametrize(("secret", "unproven"), [(None, 1), (LENIENT, 1), (KEY, 0)])
async def test_peers_without_proof_are_counted_while_they_are_connected(
    secret: ClusterSecret | None, unproven: int
) -> None:
    other = OTHER_LENIENT if secret is LENIENT else secret
    async with mesh(LOW, secret) as (low, _):
        async with mesh(HIGH, other) as (high, _):
            await introduce(low, LOW, high, HIGH)
            await until(lambda: low.is_connected(HIGH) and high.is_connected(LOW))

            assert (low.unproven_count, high.unproven_count) == (unproven, unproven)
            assert low.connection_count == 1
            assert low.refused_count == 0

        await until(lambda: not low.is_connected(HIGH))
        assert low.unproven_count == 0


async def test_a_node_without_proof_does_not_take_the_place_of_one_with_it() -> None:
    async with mesh(LOW, LENIENT) as (low, inbox), mesh(HIGH, LENIENT) as (high, _):
        await introduce(low, LOW, high, HIGH)
        await until(lambda: low.is_connected(HIGH) and high.is_connected(LOW))

        answer = await say_and_wait_for_the_end(low.port, hello(HIGH))

        assert answer == b""
        assert inbox.happened == [f"connected {HIGH}"]


async def test_a_start_without_a_secret_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async with mesh(LOW, KEY):
        assert "no cluster secret" not in caplog.text
    async with mesh(LOW):
        assert "no cluster secret" in caplog.text


def padded_hello(size: int) -> bytes:
    """Return a hello whose frame has a body of ``size`` bytes, by an unknown field."""
    base = Hello(MESH_PROTOCOL_VERSION, "c", HIGH, LOW, "x")
    padding = size - (len(encode_hello(base, pad=bytes(256))) - 256 - 4)
    return encode_hello(base, pad=bytes(padding))


async def test_mesh_hello_frame_bytes_max_is_read_and_one_more_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with mesh(LOW) as (low, _):
        await low.set_peer_address(HIGH, "127.0.0.1", NOBODY_LISTENS)
        async with dialed(low, padded_hello(MESH_HELLO_FRAME_BYTES_MAX)):
            await until(lambda: low.is_connected(HIGH))
        await until(lambda: not low.is_connected(HIGH))

        await say_and_wait_for_the_end(low.port, padded_hello(MESH_HELLO_FRAME_BYTES_MAX + 1))

        assert f"announces {MESH_HELLO_FRAME_BYTES_MAX + 1} bytes" in caplog.text


async def test_mesh_handshakes_max_are_kept_and_one_more_closes_the_oldest() -> None:
    async with mesh(LOW) as (low, _), AsyncExitStack() as stack:
        await low.set_peer_address(HIGH, "127.0.0.1", NOBODY_LISTENS)
        silent = [await stack.enter_async_context(dialed(low)) for _ in range(MESH_HANDSHAKES_MAX)]
        await until(lambda: len(low._handshakes) == MESH_HANDSHAKES_MAX)

        await stack.enter_async_context(dialed(low))

        async with timeout(PATIENCE_S):
            assert await silent[0].read(1) == b""
        assert len(low._handshakes) == MESH_HANDSHAKES_MAX
        assert low.refused_count == 1
        async with dialed(low, hello(HIGH)):  # A peer is accepted, though others are silent.
            await until(lambda: low.is_connected(HIGH))


async def test_mesh_connections_max_are_accepted_and_one_more_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nextgen.replication.mesh.mesh.MESH_CONNECTIONS_MAX", 2)
    assert MESH_CONNECTIONS_MAX > 2
    async with mesh(LOW) as (low, _), AsyncExitStack() as stack:
        accepted = [await stack.enter_async_context(dialed(low)) for _ in range(2)]
        await until(lambda: len(low._all_connections) == 2)

        async with dialed(low) as beyond, timeout(PATIENCE_S):
            assert await beyond.read(1) == b""
        await until(lambda: len(low._all_connections) == 2)
        assert not any(reader.at_eof() for reader in accepted)


async def test_mesh_peers_remembered_max_is_kept_and_one_more_drops_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nextgen.replication.mesh.mesh.MESH_PEERS_REMEMBERED_MAX", 2)
    assert MESH_PEERS_REMEMBERED_MAX > 2
    peers = [NodeId(f"node-{number}") for number in range(5, 8)]
    async with mesh(LOW) as (low, _):
        for known, node_id in enumerate(peers, start=1):
            await low.set_peer_address(node_id, "127.0.0.1", NOBODY_LISTENS)
            async with dialed(low, hello(node_id)):
                await until(lambda node_id=node_id: low.is_connected(node_id))
            assert len(low._incarnations) == min(known, 2)

        assert list(low._incarnations) == peers[1:]


async def test_mesh_reason_characters_max_are_logged_and_one_more_is_cut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with mesh(LOW) as (low, _):
        strange = Hello(MESH_PROTOCOL_VERSION, "d" * 255, NodeId("e" * 255), LOW, "x")

        await say_and_wait_for_the_end(low.port, encode_hello(strange))

        (line,) = said(caplog)
        reason = line.partition("is closed: ")[2]
        assert len(reason) == MESH_REASON_CHARACTERS_MAX
        assert reason == "e" * MESH_REASON_CHARACTERS_MAX


def test_msgpack_extensions_are_no_part_of_a_frame() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_frame(msgpack.packb((1, {"a": msgpack.ExtType(5, b"x")})))
