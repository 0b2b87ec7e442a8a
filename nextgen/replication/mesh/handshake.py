"""The first frames of a connection: they identify the peer and prove that it knows the secret.

    dialer                                  acceptor
    hello, with a nonce    ────────────▶    not meant for it: closes, and answers nothing
                           ◀────────────    challenge: its own nonce      ┐ if both have
    proof                  ────────────▶    a wrong one: closes           ┘ a secret
                           ◀────────────    hello, with its own proof

A proof is an HMAC-SHA256 with the cluster's secret over both nonces, the cluster id, both node
ids and the direction: it is worth nothing on another connection or the other way round. Without
a secret a hello has no nonce and is answered by a hello, as in earlier releases. No I/O here.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgpack

from nextgen.replication.mesh.frames import (
    HELLO_CHANNEL,
    Hello,
    Message,
    RemoteProtocolError,
    decode_frame,
    encode_frame,
    encode_hello,
    parse_hello,
)
from nextgen.replication.ports import NodeId

NONCE_BYTES = 32
"""Of either side; a nonce is never used for a second connection."""

_NONCE_FIELD = "nonce"
_PROOF_FIELD = "proof"
_CHALLENGE_FIELD = "challenge"
_PURPOSE = "pulsar-nextgen-mesh-proof-1"
_DIALER, _ACCEPTOR = "dialer", "acceptor"


@dataclass(frozen=True, slots=True)
class ClusterSecret:
    """The secret of a cluster. Unless ``is_required``, a peer without it, or with another one, is
    accepted too, so that it can be introduced or changed node by node."""

    key: bytes = field(repr=False)
    is_required: bool = True

    @classmethod
    def of(cls, key: bytes | None, *, is_required: bool) -> ClusterSecret | None:
        """Return the secret with ``key``, None without one."""
        return None if key is None else cls(key, is_required)


@dataclass(frozen=True, slots=True)
class Peer:
    """The node at the other end. ``is_proven``: it knows the cluster's secret."""

    hello: Hello
    is_proven: bool


class MeshDoor(Protocol):
    """Makes the protocols of accepted connections, once their TLS handshake is done."""

    def __call__(self) -> asyncio.Protocol: ...

    def close(self) -> None:
        """Drop the connections whose handshake is not done."""
        ...


class MeshTls(Protocol):
    """TLS of a mesh: both ends have a certificate, and no secret is needed."""

    def door(self, factory: Callable[[], asyncio.Protocol]) -> MeshDoor: ...

    def client_context(self) -> ssl.SSLContext: ...

    def on_excluded(self, listener: Callable[[frozenset[str]], None]) -> Callable[[], None]:
        """Call ``listener`` with nodes that the cluster excludes; return what ends that."""
        ...

    def flaw_of(self, certificate: Any, node_id: str) -> str:
        """Return why the holder of a verified certificate is not the peer ``node_id``, or ""."""
        ...


class HandshakeOwner(Protocol):
    """The part of a mesh that a handshake needs."""

    @property
    def secret(self) -> ClusterSecret | None: ...

    @property
    def tls(self) -> MeshTls | None: ...

    def hello_to(self, target_id: NodeId) -> Hello: ...

    def check_hello(self, hello: Hello, dialed: NodeId | None) -> None:
        """Raise ``RemoteProtocolError`` for a hello that is not meant for this process."""
        ...

    def check_peer(self, peer: Peer) -> None:
        """Raise ``RemoteProtocolError`` for a node that is not accepted."""
        ...


class Handshake:
    """One side of a handshake. After a ``RemoteProtocolError`` the connection has to be closed."""

    def __init__(
        self, owner: HandshakeOwner, dialed: NodeId | None, make_nonce: Callable[[int], bytes]
    ) -> None:
        """``dialed`` is the node that this side connected to, None on the accepting side."""
        self.certificate: Any = None
        """The peer's certificate, which TLS has verified. Set it BEFORE the first frame."""
        self._owner = owner
        self._dialed = dialed
        self._nonce = make_nonce(NONCE_BYTES) if owner.secret is not None else b""
        self._peer_nonce = b""
        self._hello: Hello | None = None

    def open(self) -> bytes:
        """Return the first bytes of the dialing side."""
        assert self._dialed is not None, "the side that accepts waits for a hello"
        hello = self._owner.hello_to(self._dialed)
        return encode_hello(hello, **{_NONCE_FIELD: self._nonce} if self._nonce else {})

    def receive(self, body: bytes) -> tuple[bytes, Peer | None]:
        """Return the bytes to send after a frame, and the peer once it is known.

        Raises:
            RemoteProtocolError: The other end is no peer. Nothing is sent to it.
        """
        channel, message = decode_frame(body)
        if channel != HELLO_CHANNEL:
            raise RemoteProtocolError("the first frame is not a hello")
        if self._dialed is not None:
            return self._receive_dialing(self._dialed, message)
        return self._receive_accepting(message)

    def _receive_accepting(self, message: Message) -> tuple[bytes, Peer | None]:
        owner, secret = self._owner, self._owner.secret
        if self._hello is not None:
            node_ids = self._hello.node_id, self._hello.target_id
            is_proven = self._is_proven(message, _DIALER, *node_ids)
            proof = self._proof(_ACCEPTOR, *node_ids)
            return self._admit(self._hello, is_proven=is_proven, more={_PROOF_FIELD: proof})
        hello = parse_hello(HELLO_CHANNEL, message)
        owner.check_hello(hello, None)
        if secret is not None and _NONCE_FIELD in message:
            self._hello, self._peer_nonce = hello, _bytes_in(message, _NONCE_FIELD)
            return encode_frame(HELLO_CHANNEL, {_CHALLENGE_FIELD: self._nonce}), None
        return self._admit(hello, is_proven=False, more={})

    def _admit(
        self, hello: Hello, *, is_proven: bool, more: dict[str, bytes]
    ) -> tuple[bytes, Peer]:
        peer = self._checked(hello, is_proven=is_proven)
        return encode_hello(self._owner.hello_to(hello.node_id), **more), peer

    def _receive_dialing(self, dialed: NodeId, message: Message) -> tuple[bytes, Peer | None]:
        own_id = self._owner.hello_to(dialed).node_id
        if self._nonce and not self._peer_nonce and _CHALLENGE_FIELD in message:
            self._peer_nonce = _bytes_in(message, _CHALLENGE_FIELD)
            proof = self._proof(_DIALER, own_id, dialed)
            return encode_frame(HELLO_CHANNEL, {_PROOF_FIELD: proof}), None
        hello = parse_hello(HELLO_CHANNEL, message)
        self._owner.check_hello(hello, dialed)
        is_proven = bool(self._peer_nonce) and self._is_proven(message, _ACCEPTOR, own_id, dialed)
        return b"", self._checked(hello, is_proven=is_proven)

    def _checked(self, hello: Hello, *, is_proven: bool) -> Peer:
        secret, tls = self._owner.secret, self._owner.tls
        if tls is not None:
            flaw = tls.flaw_of(self.certificate, hello.node_id)
            if flaw:
                raise RemoteProtocolError(f"{hello.node_id} is refused: {flaw}")
            is_proven = True
        if secret is not None and secret.is_required and not is_proven:
            raise RemoteProtocolError(f"{hello.node_id} does not prove the cluster's secret")
        peer = Peer(hello, is_proven)
        self._owner.check_peer(peer)
        return peer

    def _is_proven(
        self, message: Message, direction: str, dialer_id: NodeId, acceptor_id: NodeId
    ) -> bool:
        proof = _bytes_in(message, _PROOF_FIELD)
        return hmac.compare_digest(proof, self._proof(direction, dialer_id, acceptor_id))

    def _proof(self, direction: str, dialer_id: NodeId, acceptor_id: NodeId) -> bytes:
        secret, cluster_id = self._owner.secret, self._owner.hello_to(dialer_id).cluster_id
        assert secret is not None, "without a secret nothing is proven"
        nonces = (self._nonce, self._peer_nonce)
        dialer_nonce, acceptor_nonce = nonces if self._dialed is not None else nonces[::-1]
        covered: bytes = msgpack.packb(
            (_PURPOSE, direction, cluster_id, dialer_id, acceptor_id, dialer_nonce, acceptor_nonce)
        )
        return hmac.digest(secret.key, covered, "sha256")


def _bytes_in(message: Message, name: str) -> bytes:
    value = message.get(name)
    # A proof has as many bytes as a nonce.
    if not isinstance(value, bytes) or len(value) != NONCE_BYTES:
        raise RemoteProtocolError(f"the handshake lacks a valid {name}")
    return value
