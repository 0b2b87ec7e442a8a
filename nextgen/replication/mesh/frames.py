"""The bytes between two processes of the mesh: frames and the hello. No I/O here.

A frame is a 4-byte big-endian length and a msgpack array ``[channel, message]``. The frames of
the handshake travel on ``HELLO_CHANNEL``: see ``mesh_handshake``. Nothing received is ever
executed: msgpack holds data only.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

import msgpack

from nextgen.kernel.events.levels import EVENT_LEVEL_MAX, EVENT_LEVEL_UNREPORTED
from nextgen.kernel.limits.cluster import (
    ENTRIES_PER_MESSAGE_MAX,
    MESH_FRAME_BYTES_MAX,
    NODE_ID_BYTES_MAX,
)
from nextgen.kernel.limits.raft import (
    CLUSTER_ID_BYTES_MAX,
    MESH_FRAME_PART_ITEMS_MAX,
    MESH_FRAME_PARTS_MAX,
    MESH_FRAME_UNCOUNTED_BYTES,
    MESH_INCARNATION_BYTES_MAX,
)
from nextgen.replication.ports import NodeId

_unpack = partial(
    msgpack.unpackb,
    max_array_len=ENTRIES_PER_MESSAGE_MAX,
    max_map_len=MESH_FRAME_PART_ITEMS_MAX,
    max_ext_len=0,
)

Message = dict[str, Any]
"""A message on the wire: text keys, msgpack values. ``protocol.messages`` lists the keys."""

MESH_PROTOCOL_VERSION = 1
"""Raised when an older process could misread a frame. Both sides must agree."""

HELLO_CHANNEL = -1
"""The channel of the handshake; groups use numbers from 0."""

HEARTBEATS_CHANNEL = -2
"""The channel of the heartbeats that the groups of a process share."""

HELLO_MAGIC = "pulsar-nextgen-mesh"
"""First bytes of a connection between peers; anything else at the port is closed."""

_LENGTH = struct.Struct(">I")
_TEXT = frozenset({str})
_HELLO_TEXTS = (
    ("cluster_id", CLUSTER_ID_BYTES_MAX),
    ("node_id", NODE_ID_BYTES_MAX),
    ("target_id", NODE_ID_BYTES_MAX),
    ("incarnation", MESH_INCARNATION_BYTES_MAX),
)


class RemoteProtocolError(Exception):
    """The peer sent something it may not send. Only its own connection is closed."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The identity of the peer. ``incarnation`` differs after every start of a process.

    ``event_level`` is the level of events that it knows, see ``nextgen.kernel.events.levels``.
    Older peers do not send it and ignore it. ``shares_heartbeats``, which still older ones do not
    know: it reads messages on ``HEARTBEATS_CHANNEL``.
    """

    protocol_version: int
    cluster_id: str
    node_id: NodeId
    target_id: NodeId
    incarnation: str
    event_level: int = EVENT_LEVEL_UNREPORTED
    shares_heartbeats: bool = False


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
        frame = _unpack(body) if len(body) <= MESH_FRAME_UNCOUNTED_BYTES else _unpack_counted(body)
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


def _unpack_counted(body: bytes) -> Any:
    count = _PartCounter().count
    return _unpack(body, list_hook=count, object_hook=count)


class _PartCounter:
    """Refuses a large frame that has the shape of no message: 8 MB may hold eight million empty
    maps, a second of work and half a gigabyte."""

    def __init__(self) -> None:
        self._parts_left = MESH_FRAME_PARTS_MAX
        self._has_entries = False

    def count(self, part: Any) -> Any:
        self._parts_left -= 1
        if len(part) > MESH_FRAME_PART_ITEMS_MAX:
            if self._has_entries:
                raise RemoteProtocolError("a frame has two long lists")
            self._has_entries = True
        if self._parts_left < 0:
            raise RemoteProtocolError(f"a frame has more than {MESH_FRAME_PARTS_MAX} parts")
        return part


def encode_hello(hello: Hello, **more: bytes) -> bytes:
    """Return the frame with ``hello``, and ``more`` fields, which older peers ignore."""
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
            **({"shares_heartbeats": True} if hello.shares_heartbeats else {}),
            **more,
        },
    )


def parse_hello(channel: int, message: Message) -> Hello:
    """Return the hello in a frame.

    Raises:
        RemoteProtocolError: It is none, or a field is longer than it may be.
    """
    if channel != HELLO_CHANNEL or message.get("magic") != HELLO_MAGIC:
        raise RemoteProtocolError("the first frame is not a hello")
    version = message.get("protocol_version")
    texts = [_hello_text(message, name, bytes_max) for name, bytes_max in _HELLO_TEXTS]
    if type(version) is not int:
        raise RemoteProtocolError("the hello lacks a valid protocol_version")
    level = message.get("event_level", EVENT_LEVEL_UNREPORTED)
    if not is_event_level(level):
        raise RemoteProtocolError("the hello has an invalid level of events")
    shares = message.get("shares_heartbeats", False)
    if type(shares) is not bool:
        raise RemoteProtocolError("the hello has an invalid shares_heartbeats")
    cluster_id, node_id, target_id, incarnation = texts
    return Hello(
        version, cluster_id, NodeId(node_id), NodeId(target_id), incarnation, level, shares
    )


def _hello_text(message: Message, name: str, bytes_max: int) -> str:
    text = message.get(name)
    if not isinstance(text, str) or not 0 < len(text.encode()) <= bytes_max:
        raise RemoteProtocolError(f"the hello lacks a valid {name} of at most {bytes_max} bytes")
    if not text.isprintable():  # It may be logged.
        raise RemoteProtocolError(f"the hello lacks a valid {name}: it cannot be printed")
    return text


def is_event_level(value: object) -> TypeGuard[int]:
    """Return whether ``value``, which a peer sent, can be an event level."""
    return type(value) is int and EVENT_LEVEL_UNREPORTED <= value <= EVENT_LEVEL_MAX


class FrameReader:
    """Cuts a byte stream into frames, whatever the chunks. ``frame_bytes_max`` may be changed."""

    def __init__(self, frame_bytes_max: int = MESH_FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self.frame_bytes_max = frame_bytes_max

    def receive_data(self, data: bytes, *, frames_max: int | None = None) -> list[bytes]:
        """Return the bodies of the frames that ``data`` completes, ``frames_max`` at most.

        Raises:
            RemoteProtocolError: A frame announces more than the limit.
        """
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        offset = 0
        while len(buffer) - offset >= _LENGTH.size and len(bodies) != frames_max:
            (length,) = _LENGTH.unpack_from(buffer, offset)
            if length > self.frame_bytes_max:
                raise RemoteProtocolError(
                    f"a frame announces {length} bytes, at most {self.frame_bytes_max} may be"
                )
            end = offset + _LENGTH.size + length
            if end > len(buffer):
                break
            bodies.append(bytes(buffer[offset + _LENGTH.size : end]))
            offset = end
        if offset:
            del buffer[:offset]
        return bodies
