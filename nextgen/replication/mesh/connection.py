"""One connection of the mesh, from the handshake on."""

from __future__ import annotations

import asyncio
import secrets
import socket
from typing import Protocol, cast

from nextgen.kernel.limits.cluster import MESH_FRAME_BYTES_MAX, MESH_WRITE_BUFFER_BYTES_MAX
from nextgen.kernel.limits.raft import MESH_HELLO_FRAME_BYTES_MAX
from nextgen.replication.mesh.frames import (
    FrameReader,
    Hello,
    Message,
    RemoteProtocolError,
    decode_frame,
    encode_frame,
)
from nextgen.replication.mesh.handshake import Handshake, HandshakeOwner, Peer
from nextgen.replication.ports import NodeId

HELLO_DEADLINE_S = 2.0
"""Deadline for the whole handshake: a connection whose peer is not known by then is closed."""

KEEPALIVE_IDLE_S = 5
"""Silence on a connection before the kernel probes whether the peer's host is still there."""

KEEPALIVE_INTERVAL_S = 1
"""Time between two keep-alive probes."""

KEEPALIVE_PROBES = 3
"""Unanswered keepalive probes before the connection counts as broken."""

USER_TIMEOUT_MS = 5_000
"""Unacknowledged bytes older than this break the connection: a cut cable is noticed."""


class ConnectionOwner(HandshakeOwner, Protocol):
    """The receiver of a connection's reports."""

    def connection_opened(self, connection: PeerConnection) -> None: ...

    def peer_known(self, connection: PeerConnection, peer: Peer) -> None:
        """Take the connection in."""
        ...

    def message_received(self, sender: NodeId, channel: int, message: Message) -> None: ...

    def protocol_broken(self, connection: PeerConnection, error: RemoteProtocolError) -> None: ...

    def connection_closed(self, connection: PeerConnection) -> None: ...


class PeerConnection(asyncio.Protocol):
    """Frames to and from one peer. Messages of one turn of the loop leave in one write.

    ``dialed`` is the peer this side connected to, or None for an accepted connection, whose
    peer is known after the handshake.
    """

    def __init__(self, owner: ConnectionOwner, dialed: NodeId | None) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(MESH_HELLO_FRAME_BYTES_MAX)
        self._handshake = Handshake(owner, dialed, secrets.token_bytes)
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._hello_deadline: asyncio.TimerHandle | None = None
        self.dialed = dialed
        self.peer: Peer | None = None
        self.established: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def hello(self) -> Hello | None:
        """The peer's hello, None before it is received."""
        return self.peer.hello if self.peer is not None else None

    def __repr__(self) -> str:
        peer = self.hello.node_id if self.hello else self.dialed
        return f"<PeerConnection peer={peer} established={self.peer is not None}>"

    @property
    def remote_host(self) -> str:
        """The host of the peer, "" once the connection is closed."""
        name = self._transport.get_extra_info("peername") if self._transport else None
        return str(name[0]) if name else ""

    @property
    def outbox_bytes(self) -> int:
        """Bytes that the peer has not taken yet."""
        buffered = self._transport.get_write_buffer_size() if self._transport else 0
        return self._outgoing_bytes + buffered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: what uvloop hands over does not derive from asyncio's class.
        self._transport = cast(asyncio.Transport, transport)
        _set_socket_options(transport.get_extra_info("socket"))
        self._hello_deadline = self._loop.call_later(HELLO_DEADLINE_S, self._hello_is_due)
        secured = transport.get_extra_info("ssl_object")
        if secured is not None:
            self._handshake.certificate = secured.getpeercert()
        self._owner.connection_opened(self)
        if self.dialed is not None:
            self._transport.write(self._handshake.open())

    def data_received(self, data: bytes) -> None:
        try:
            if self.peer is None:
                self._shake_hands(data)
                data = b""
            if self.peer is not None:
                for body in self._reader.receive_data(data):
                    self._frame_received(self.peer.hello.node_id, body)
        except RemoteProtocolError as error:
            self._owner.protocol_broken(self, error)
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._hello_deadline is not None:
            self._hello_deadline.cancel()
        if not self.closed.done():
            self.closed.set_result(None)
        if not self.established.done():
            self.established.set_exception(ConnectionError("closed before the hello"))
            self.established.exception()
        self._owner.connection_closed(self)

    def send(self, channel: int, message: Message) -> None:
        """Queue ``message``; it leaves at the end of this turn of the loop."""
        if self._transport is None:
            return
        frame = encode_frame(channel, message)
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(frame)
        self._outgoing_bytes += len(frame)

    def abort(self) -> None:
        """Close at once; queued frames are dropped."""
        if self._transport is not None:
            self._transport.abort()

    def _shake_hands(self, data: bytes) -> None:
        """Process the frames of the handshake; later bytes stay in the reader."""
        while self.peer is None and self._is_open:
            bodies = self._reader.receive_data(data, frames_max=1)
            if not bodies:
                return
            data = b""
            reply, peer = self._handshake.receive(bodies[0])
            assert self._transport is not None, "an open connection has a transport"
            self._transport.write(reply)
            if peer is not None:
                self._reader.frame_bytes_max = MESH_FRAME_BYTES_MAX
                self._owner.peer_known(self, peer)
                self.peer = peer
                self.established.set_result(None)

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def _frame_received(self, sender: NodeId, body: bytes) -> None:
        if self._is_open:
            self._owner.message_received(sender, *decode_frame(body))

    def _hello_is_due(self) -> None:
        if self.peer is None:
            self.abort()

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        queued, self._outgoing_bytes = self._outgoing_bytes, 0
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() + queued > MESH_WRITE_BUFFER_BYTES_MAX:
            self.abort()
            return
        self._transport.write(b"".join(outgoing))


def _set_socket_options(connection: socket.socket | None) -> None:
    if connection is None:
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
    ):
        if hasattr(socket, name):  # Linux has them all; elsewhere the defaults must do.
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
