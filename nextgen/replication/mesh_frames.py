"""The bytes between two processes of the mesh: frames and the hello. No I/O here.

A frame is a 4-byte big-endian length and a msgpack array ``[channel, message]``. The first
frame of each side is its hello, on ``HELLO_CHANNEL``. Nothing received is ever executed:
msgpack holds data only.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeGuard

import msgpack

from nextgen.kernel.event_levels import EVENT_LEVEL_MAX, EVENT_LEVEL_UNSAID
from nextgen.kernel.limits import MESH_FRAME_BYTES_MAX
from nextgen.replication.ports import NodeId

Message = dict[str, Any]
"""What travels: text keys, msgpack values. ``raft_messages`` says which keys there are."""

MESH_PROTOCOL_VERSION = 1
"""Raised when an older process could misread a frame. Both sides must agree."""

HELLO_CHANNEL = -1
"""The channel of the first frame of each side; groups use numbers from 0."""

HELLO_MAGIC = "pulsar-nextgen-mesh"
"""Tells our peers from anything else that connects to the port."""

_LENGTH = struct.Struct(">I")
_TEXT = frozenset({str})


class RemoteProtocolError(Exception):
    """The peer sent something it may not send. Its connection is closed; nobody else suffers."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who is at the other end. ``incarnation`` differs after every start of a process.

    ``event_level`` says which events it knows, see ``nextgen.kernel.event_levels``. Older peers
    neither say it nor look at it.
    """

    protocol_version: int
    cluster_id: str
    node_id: NodeId
    target_id: NodeId
    incarnation: str
    event_level: int = EVENT_LEVEL_UNSAID


def encode_frame(channel: int, message: Message) -> bytes:
    """Return the frame that carries ``message`` on ``channel``."""
    body: bytes = msgpack.packb((channel, message))
    assert len(body) <= MESH_FRAME_BYTES_MAX, f"a frame of {len(body)} bytes is too large"
    return _LENGTH.pack(len(body)) + body


def decode_frame(body: bytes) -> tuple[int, Message]:
    """Return channel and message of a frame without its length.

    Raises:
        RemoteProtocolError: It is no frame.
    """
    try:
        frame = msgpack.unpackb(body)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"a frame is not msgpack: {error}") from error
    if not isinstance(frame, list) or len(frame) != 2:
        raise RemoteProtocolError("a frame is not an array of channel and message")
    channel, message = frame
    if not isinstance(channel, int) or not isinstance(message, dict):
        raise RemoteProtocolError("a frame is not an array of channel and message")
    if not _TEXT.issuperset(map(type, message)):
        raise RemoteProtocolError("a message has a key that is no text")
    return channel, message


def encode_hello(hello: Hello) -> bytes:
    """Return the frame that opens a connection."""
    return encode_frame(
        HELLO_CHANNEL,
        {
            "magic": HELLO_MAGIC,
            "protocol_version": hello.protocol_version,
            "cluster_id": hello.cluster_id,
            "node_id": hello.node_id,
            "target_id": hello.target_id,
            "incarnation": hello.incarnation,
            "event_level": hello.event_level,
        },
    )


def parse_hello(channel: int, message: Message) -> Hello:
    """Return the hello in a first frame.

    Raises:
        RemoteProtocolError: It is none.
    """
    if channel != HELLO_CHANNEL or message.get("magic") != HELLO_MAGIC:
        raise RemoteProtocolError("the first frame is not a hello")
    version = message.get("protocol_version")
    texts = [message.get(k) for k in ("cluster_id", "node_id", "target_id", "incarnation")]
    if not isinstance(version, int) or not all(isinstance(text, str) for text in texts):
        raise RemoteProtocolError("the hello lacks a field")
    level = message.get("event_level", EVENT_LEVEL_UNSAID)
    if not is_event_level(level):
        raise RemoteProtocolError("the hello says a level of events that is none")
    cluster_id, node_id, target_id, incarnation = (str(text) for text in texts)
    return Hello(version, cluster_id, NodeId(node_id), NodeId(target_id), incarnation, level)


def is_event_level(value: object) -> TypeGuard[int]:
    """Say whether ``value``, which came from elsewhere, can be a level of events."""
    return type(value) is int and EVENT_LEVEL_UNSAID <= value <= EVENT_LEVEL_MAX


class FrameReader:
    """Cuts a byte stream into frames, whatever the chunks."""

    def __init__(self, frame_bytes_max: int = MESH_FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._frame_bytes_max = frame_bytes_max

    def receive_data(self, data: bytes) -> list[bytes]:
        """Return the bodies of the frames that ``data`` completes.

        Raises:
            RemoteProtocolError: A frame announces more than the limit.
        """
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        offset = 0
        while len(buffer) - offset >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, offset)
            if length > self._frame_bytes_max:
                raise RemoteProtocolError(
                    f"a frame announces {length} bytes, at most {self._frame_bytes_max} may be"
                )
            end = offset + _LENGTH.size + length
            if end > len(buffer):
                break
            bodies.append(bytes(buffer[offset + _LENGTH.size : end]))
            offset = end
        if offset:
            del buffer[:offset]
        return bodies
