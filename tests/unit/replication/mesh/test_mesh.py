"""The mesh on loopback: who is let in, what closes a connection, who is reported gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import cast
from unittest.mock import patch

import pytest

from nextgen.kernel.limits.cluster import MESH_WRITE_BUFFER_BYTES_MAX
from nextgen.replication.mesh import connection as mesh_connection
from nextgen.replication.mesh import mesh as mesh_module
from nextgen.replication.mesh.frames import (
    MESH_PROTOCOL_VERSION,
    Hello,
    Message,
    RemoteProtocolError,
    encode_frame,
    encode_hello,
)
from nextgen.replication.mesh.mesh import LOG_LINES_MAX, Mesh
from nextgen.replication.ports import NodeId
from nextgen.tasks.timeouts import timeout
from tests.support.processes.kept_tasks import break_kept, has_begun_again, kept_tasks

LOW, HIGH = NodeId("node-1"), NodeId("node-2")  # The greater one dials.
CHANNEL = 7

PATIENCE_S = 30.0
"""Deadlines of a mesh and of the tests: none passes though this process stands still a while."""


class Inbox:
    """A channel that writes down what it hears."""

    def __init__(self) -> None:
        self.messages: list[tuple[NodeId, Message]] = []
        self.happened: list[str] = []

    def on_message(self, sender: NodeId, message: Message) -> None:
        if message.get("bad"):
            raise RemoteProtocolError("a bad message")
        self.messages.append((sender, message))

    def on_peer_connected(self, node_id: NodeId) -> None:
        self.happened.append(f"connected {node_id}")

    def on_peer_disconnected(self, node_id: NodeId) -> None:
        self.happened.append(f"disconnected {node_id}")

    def on_peer_unreachable(self, node_id: NodeId) -> None:
        self.happened.append(f"unreachable {node_id}")


async def until(condition: Callable[[], bool]) -> None:
    async with timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.002)


@contextmanager
def patient() -> Iterator[None]:
    with (
        patch.object(mesh_module, "PROBE_DEADLINE_S", PATIENCE_S),
        patch.object(mesh_module, "CONNECT_DEADLINE_S", PATIENCE_S),
        patch.object(mesh_module, "HELLO_DEADLINE_S", PATIENCE_S),
        patch.object(mesh_connection, "HELLO_DEADLINE_S", PATIENCE_S),
    ):
        yield


@asynccontextmanager
async def mesh(
    node_id: NodeId, *, cluster_id: str = "c", port: int = 0
) -> AsyncIterator[tuple[Mesh, Inbox]]:
    made = Mesh(node_id, cluster_id, listen_host="127.0.0.1", listen_port=port)
    inbox = Inbox()
    with patient():
        await made.start()
        made.register(CHANNEL, inbox)
        try:
            yield made, inbox
        finally:
            await made.stop()


async def introduce(one: Mesh, one_id: NodeId, other: Mesh, other_id: NodeId) -> None:
    await one.set_peer_address(other_id, "127.0.0.1", other.port)
    await other.set_peer_address(one_id, "127.0.0.1", one.port)


async def connect(one: Mesh, one_id: NodeId, other: Mesh, other_id: NodeId) -> None:
    await introduce(one, one_id, other, other_id)
    await until(lambda: one.is_connected(other_id) and other.is_connected(one_id))


async def say_and_wait_for_the_end(
    port: int, first: bytes, source: tuple[str, int] | None = None
) -> bytes:
    """Send ``first`` as a stranger; return what came back when the mesh closed the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=source)
    writer.write(first)
    answer = b""
    try:
        async with timeout(PATIENCE_S):
            while data := await reader.read(65_536):
                answer += data
    except ConnectionResetError:
        pass
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    return answer


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what meshes logged of those they refused."""
    lines = [each.getMessage() for each in caplog.records if each.name == mesh_module.__name__]
    return [line for line in lines if line.startswith("mesh: ")]


async def test_messages_reach_the_channel_they_were_sent_on_in_order() -> None:
    async with mesh(LOW) as (low, low_inbox), mesh(HIGH) as (high, high_inbox):
        await connect(low, LOW, high, HIGH)

        for number in range(100):
            low.send(HIGH, CHANNEL, {"n": number})
        high.send(LOW, CHANNEL, {"body": bytes(1_000_000)})
        high.send(LOW, CHANNEL + 1, {"nobody": "listens"})

        await until(lambda: len(high_inbox.messages) == 100 and len(low_inbox.messages) == 1)
        assert [message["n"] for _, message in high_inbox.messages] == list(range(100))
        assert low_inbox.messages == [(HIGH, {"body": bytes(1_000_000)})]


async def test_a_dialer_that_ended_dials_again() -> None:
    async with mesh(LOW) as (low, _), mesh(HIGH) as (high, _):
        await introduce(low, LOW, high, HIGH)
        await until(lambda: "mesh_dialer" in kept_tasks())
        broken = break_kept("mesh_dialer")
        await until(lambda: has_begun_again("mesh_dialer", broken))

        await until(lambda: low.is_connected(HIGH) and high.is_connected(LOW))


async def test_sending_to_a_peer_that_is_not_connected_says_so() -> None:
    async with mesh(LOW) as (low, _):
        assert not low.send(HIGH, CHANNEL, {})


async def test_a_channel_that_registers_late_hears_who_is_connected() -> None:
    async with mesh(LOW) as (low, _), mesh(HIGH) as (high, _):
        await connect(low, LOW, high, HIGH)
        late = Inbox()

        low.register(CHANNEL + 1, late)

        assert late.happened == [f"connected {HIGH}"]


async def test_a_peer_of_another_cluster_is_refused_and_mentioned_once_by_each_side(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with mesh(LOW) as (low, low_inbox), mesh(HIGH, cluster_id="other") as (high, _):
        await introduce(low, LOW, high, HIGH)

        # The one that dialed is not answered, and can say no more than that.
        await until(lambda: f"{LOW} closes connections without an answer" in caplog.text)
        for _ in range(3):
            hello = Hello(MESH_PROTOCOL_VERSION, "other", HIGH, LOW, "x")
            await say_and_wait_for_the_end(low.port, encode_hello(hello))

        assert not low.is_connected(HIGH)
        assert low_inbox.messages == []
        assert caplog.text.count("node-2 belongs to cluster 'other', this process to 'c'") == 1
        assert caplog.text.count("closes connections without an answer") == 1


@pytest.mark.parametrize(
    ("first", "complaint"),
    [
        (encode_hello(Hello(99, "c", HIGH, LOW, "x")), "mesh protocol version 99"),
        (encode_hello(Hello(1, "c", HIGH, NodeId("node-9"), "x")), "looks for node-9"),
        (encode_hello(Hello(1, "c", LOW, LOW, "x")), "looks for node-1"),
        (encode_hello(Hello(1, "c", NodeId("node-9"), LOW, "x")), "no node that this process"),
        (encode_frame(CHANNEL, {"no": "hello"}), "not a hello"),
        (b"GET / HTTP/1.1\r\n\r\n", "announces"),
        (b"\x00\x00\x00\x02\xc1\xc1", "not msgpack"),
    ],
)
async def test_a_peer_with_an_invalid_greeting_is_dropped(
    first: bytes, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with mesh(LOW) as (low, inbox), mesh(HIGH) as (high, _):
        await connect(low, LOW, high, HIGH)

        answer = await say_and_wait_for_the_end(low.port, first)

        assert answer == b"", "nothing is disclosed"
        assert complaint in caplog.text
        assert inbox.happened == [f"connected {HIGH}"], "the others are not disturbed"


async def test_a_bad_message_closes_its_own_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    third = NodeId("node-3")
    async with mesh(LOW) as (low, inbox), mesh(HIGH) as (high, _), mesh(third) as (last, _):
        await connect(low, LOW, high, HIGH)
        await connect(low, LOW, last, third)

        high.send(LOW, CHANNEL, {"bad": True})

        await until(lambda: f"disconnected {HIGH}" in inbox.happened)
        last.send(LOW, CHANNEL, {"still": "here"})
        await until(lambda: inbox.messages == [(third, {"still": "here"})])
        assert f"disconnected {third}" not in inbox.happened
        assert "a bad message" in caplog.text


@pytest.mark.parametrize(("survivor", "victim"), [(LOW, HIGH), (HIGH, LOW)])
async def test_a_peer_whose_port_refuses_is_reported_unreachable(
    survivor: NodeId, victim: NodeId
) -> None:
    """Whichever side dialed: the one that did not finds out by a probe."""
    async with mesh(survivor) as (living, inbox):
        async with mesh(victim) as (dying, _):
            await connect(living, survivor, dying, victim)

        await until(lambda: f"unreachable {victim}" in inbox.happened)

        assert inbox.happened[:2] == [f"connected {victim}", f"disconnected {victim}"]


async def test_a_connection_that_broke_comes_back_by_itself_without_alarm() -> None:
    async with mesh(LOW) as (low, low_inbox), mesh(HIGH) as (high, _):
        await connect(low, LOW, high, HIGH)

        high.send(LOW, CHANNEL, {"bad": True})

        await until(lambda: low_inbox.happened.count(f"connected {HIGH}") == 2)
        assert f"unreachable {HIGH}" not in low_inbox.happened


async def test_a_process_that_restarted_is_reported_before_it_is_connected_again() -> None:
    async with mesh(LOW) as (low, inbox):
        async with mesh(HIGH) as (high, _):
            await connect(low, LOW, high, HIGH)
            port = high.port
        inbox.happened.clear()

        async with mesh(HIGH, port=port) as (high, _):
            await connect(low, LOW, high, HIGH)

        at = inbox.happened.index(f"connected {HIGH}")
        assert f"unreachable {HIGH}" in inbox.happened[:at]


async def test_a_peer_that_moved_is_found_at_its_new_address() -> None:
    async with mesh(HIGH) as (high, inbox), mesh(LOW) as (low, _):
        await connect(high, HIGH, low, LOW)
        await low.stop()

        async with mesh(LOW) as (moved, _):
            await introduce(moved, LOW, high, HIGH)
            await until(lambda: high.is_connected(LOW))

            assert inbox.happened.count(f"connected {LOW}") == 2


async def test_a_taken_port_is_an_error_at_the_start() -> None:
    async with mesh(LOW) as (low, _):
        second = Mesh(HIGH, "c", listen_host="127.0.0.1", listen_port=low.port)

        with pytest.raises(OSError, match=str(low.port)):
            await second.start()
        await second.stop()


async def test_a_noisy_stranger_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with mesh(LOW) as (listening, _):
        for number in range(10):
            # Each is refused with a sentence of its own.
            await say_and_wait_for_the_end(listening.port, (2**31 + number).to_bytes(4, "big"))
        hello = Hello(MESH_PROTOCOL_VERSION, "other", HIGH, LOW, "x")
        await say_and_wait_for_the_end(listening.port, encode_hello(hello))

    assert len(said(caplog)) == 1


async def test_however_many_shout_no_disk_is_filled(caplog: pytest.LogCaptureFixture) -> None:
    async with mesh(LOW) as (listening, _):
        for number in range(LOG_LINES_MAX + 10):
            # The whole of 127.0.0.0/8 is this machine.
            source = (f"127.0.1.{number + 1}", 0)
            await say_and_wait_for_the_end(listening.port, b"\xff\xff\xff\xff", source)

    assert len(said(caplog)) == LOG_LINES_MAX


async def test_a_mistake_of_a_peer_is_mentioned_beside_that_of_a_stranger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with mesh(LOW) as (low, inbox), mesh(HIGH) as (high, _):
        await connect(low, LOW, high, HIGH)
        await say_and_wait_for_the_end(low.port, b"\xff\xff\xff\xff")

        high.send(LOW, CHANNEL, {"bad": True})

        await until(lambda: f"disconnected {HIGH}" in inbox.happened)
    assert "the connection to a stranger at 127.0.0.1 is closed" in caplog.text
    assert f"the connection to {HIGH} is closed: a bad message" in caplog.text


class BusyTransport:
    """A transport whose peer has yet to read ``unread_bytes``."""

    def __init__(self, unread_bytes: int) -> None:
        self.unread_bytes = unread_bytes
        self.written_bytes = 0
        self.is_aborted = False

    def get_extra_info(self, _name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def is_closing(self) -> bool:
        return self.is_aborted

    def write(self, data: bytes) -> None:
        self.written_bytes += len(data)

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize("more_bytes", [0, 1])
async def test_mesh_write_buffer_bytes_max_may_wait_for_a_peer_and_one_byte_more_ends_it(
    more_bytes: int,
) -> None:
    async with mesh(NodeId("a")) as (own, _):
        frame = encode_frame(1, {"message": "append"})
        transport = BusyTransport(MESH_WRITE_BUFFER_BYTES_MAX - len(frame) + more_bytes)
        connection = mesh_connection.PeerConnection(own, None)
        connection.connection_made(cast(asyncio.Transport, transport))

        connection.send(1, {"message": "append"})
        await asyncio.sleep(0)
        connection.connection_lost(None)

    assert transport.is_aborted is (more_bytes == 1)
    assert transport.written_bytes == (0 if more_bytes else len(frame))
