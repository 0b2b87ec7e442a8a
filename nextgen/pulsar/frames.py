"""Frames of the Pulsar protocol, without a socket.

    total size    4 bytes, big-endian: everything behind it
    command size  4 bytes
    command       a ``BaseCommand``
    payload       the rest; SEND and MESSAGE only, see ``nextgen.pulsar.payload``

For any bytes, no other exception than ``MalformedFrame`` is raised.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from nextgen.kernel.input.short_text import shortened
from nextgen.kernel.limits.inbound import LOG_FIELD_CHARACTERS_MAX
from nextgen.kernel.limits.pulsar import PULSAR_FRAME_BYTES_MAX
from protos.pulsar.PulsarApi_pb2 import BaseCommand

SIZE_BYTES = 4
"""Each of the two sizes that a frame begins with."""

_SIZE = struct.Struct(">I")
_SIZES = struct.Struct(">II")
_new = tuple.__new__

FIELD_OF_TYPE: dict[int, str] = {
    field.number: field.name for field in BaseCommand.DESCRIPTOR.fields if field.number > 1
}
"""The field of ``BaseCommand`` that holds the command of each type."""

TYPES_WITH_REQUEST_ID = frozenset(
    field.number
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None and "request_id" in field.message_type.fields_by_name
)
"""The commands that carry a request id: requests and their answers."""


class MalformedFrame(ValueError):
    """The peer violated the protocol. Its connection is closed.

    The reason may quote the peer, so it is cut at ``LOG_FIELD_CHARACTERS_MAX``.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(shortened(reason, LOG_FIELD_CHARACTERS_MAX))


class RawFrame(NamedTuple):
    """One frame, not parsed. ``payload`` is everything behind the command."""

    command: bytes
    payload: bytes


class FrameReader:
    """Cuts a byte stream into frames, for any chunking, in time proportional to the bytes.

    Frames before a malformed one are never lost: ``feed`` returns them and sets ``error``. It
    raises the error when there is nothing to return, and from then on. A bad size is noticed as
    soon as its four bytes are here.

    The first frame may have a limit of its own: a server accepts little from a client that has not
    sent CONNECT, and closes the connection if the first frame is another command.
    """

    __slots__ = ("_frame_bytes_max", "_needed_bytes", "_next_bytes_max", "_pending", "error")

    def __init__(
        self,
        *,
        frame_bytes_max: int = PULSAR_FRAME_BYTES_MAX,
        first_frame_bytes_max: int | None = None,
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._next_bytes_max = (
            frame_bytes_max if first_frame_bytes_max is None else first_frame_bytes_max
        )
        # Not there while idle: most connections are.
        self._pending: bytearray | None = None
        self._needed_bytes = 0
        self.error: MalformedFrame | None = None
        """Why nothing further can be read, or None."""

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return 0 if self._pending is None else len(self._pending)

    @property
    def needed_bytes(self) -> int:
        """Size of the incomplete frame; while unknown, the bytes of the size field."""
        return self._needed_bytes

    def take_pending(self, bytes_max: int) -> bytes:
        """Remove and return the incomplete frame's bytes; none if they exceed ``bytes_max``.

        For a caller that reads frames by itself first and feeds the bytes that it leaves.
        """
        if self._pending is None or len(self._pending) > bytes_max:
            return b""
        pending, self._pending = bytes(self._pending), None
        return pending

    def feed(self, data: bytes) -> list[RawFrame]:
        """Return the frames that ``data`` completes, in order.

        Raises:
            MalformedFrame: The stream is broken, and every frame before that was returned.
        """
        if self.error is not None:
            raise self.error
        if self._pending is not None:
            self._pending += data
            if len(self._pending) < self._needed_bytes:
                return []
            data = bytes(self._pending)
            self._pending = None

        frames: list[RawFrame] = []
        start, end = 0, len(data)
        total_max = self._next_bytes_max - SIZE_BYTES
        later_total_max = self._frame_bytes_max - SIZE_BYTES
        while end - start >= 2 * SIZE_BYTES:
            total, command_bytes = _SIZES.unpack_from(data, start)
            if total > total_max or command_bytes > total - SIZE_BYTES:
                break
            behind = start + SIZE_BYTES + total
            if behind > end:
                break
            payload_at = start + 2 * SIZE_BYTES + command_bytes
            # Bypasses the class's own constructor, which takes longer than all the rest.
            frames.append(
                _new(RawFrame, (data[start + 2 * SIZE_BYTES : payload_at], data[payload_at:behind]))
            )
            start = behind
            total_max = later_total_max
        if start:
            self._next_bytes_max = self._frame_bytes_max
        if start < end:
            self._keep(data[start:])
            if self.error is not None and not frames:
                raise self.error
        return frames

    def _keep(self, rest: bytes) -> None:
        """Hold ``rest`` until the frame it begins is complete, if it ever can be."""
        if len(rest) < SIZE_BYTES:
            self._needed_bytes = SIZE_BYTES
        else:
            (total,) = _SIZE.unpack_from(rest)
            if SIZE_BYTES + total > self._next_bytes_max:
                self.error = MalformedFrame(
                    f"a frame announces {SIZE_BYTES + total} bytes, "
                    f"at most {self._next_bytes_max} may be"
                )
                return
            if total < SIZE_BYTES:
                self.error = MalformedFrame(f"a frame of {total} bytes has room for no command")
                return
            self._needed_bytes = 2 * SIZE_BYTES
            if len(rest) >= 2 * SIZE_BYTES:
                (command_bytes,) = _SIZE.unpack_from(rest, SIZE_BYTES)
                if command_bytes > total - SIZE_BYTES:
                    self.error = MalformedFrame(
                        f"a frame of {total} bytes announces a command of {command_bytes}"
                    )
                    return
                self._needed_bytes = SIZE_BYTES + total
        self._pending = bytearray(rest)


def parse_command(data: bytes) -> BaseCommand:
    """Return the command in ``data``. Unknown fields are ignored.

    Its type is known, the message of that type is set with all required fields (PING and others
    without required fields may be left out), and every string in it is UTF-8.

    Raises:
        MalformedFrame: ``data`` is not such a command.
    """
    try:
        command = BaseCommand.FromString(data)
    except DecodeError as error:
        raise MalformedFrame(f"a command is no protobuf message: {error}") from error
    if not command.HasField("type"):
        raise MalformedFrame("a command has no type that is known here")
    kind = command.type
    field = FIELD_OF_TYPE[kind]
    inner = getattr(command, field)
    # The inner message alone: checking the whole command takes longer than parsing it.
    if not inner.IsInitialized():
        if not command.HasField(field):
            raise MalformedFrame(f"{_type_name(command)} without its {field}")
        raise MalformedFrame(f"{_type_name(command)} lacks {missing_fields(inner)}")
    texts = _TEXTS_OF_TYPE[kind]
    if texts is not None and not texts.are_text(inner):
        raise MalformedFrame(f"{_type_name(command)} has a text that is not UTF-8")
    return command


def request_id_in(data: bytes) -> int | None:
    """Return the request id of a command that ``parse_command`` may have refused, if it has one."""
    try:
        command = BaseCommand.FromString(data)
    except DecodeError:
        return None
    if not command.HasField("type"):
        return None
    return request_id_of(command)


def request_id_of(command: BaseCommand) -> int | None:
    """Return the request id that an answer to ``command`` carries, or None if it has none."""
    kind = command.type
    if kind not in TYPES_WITH_REQUEST_ID:
        return None
    inner = getattr(command, FIELD_OF_TYPE[kind])
    return int(inner.request_id) if inner.HasField("request_id") else None


def encode_command(command: BaseCommand) -> bytes:
    """Return the frame of a command without payload."""
    body = command.SerializeToString()
    return _SIZES.pack(SIZE_BYTES + len(body), len(body)) + body


def encode_frame(command: BaseCommand, payload: bytes) -> bytes:
    """Return the frame of a command with ``payload`` behind it."""
    return frame_head(command, len(payload)) + payload


def frame_head(command: BaseCommand, payload_bytes: int) -> bytes:
    """Return the bytes before a payload of ``payload_bytes``, so that it need not be copied."""
    body = command.SerializeToString()
    return _SIZES.pack(SIZE_BYTES + len(body) + payload_bytes, len(body)) + body


def missing_fields(message: Any) -> str:
    """Return the missing required fields of a protobuf message, for a sentence.

    Of nested messages only the first incomplete one is examined: there may be thousands.
    """
    names = [
        field.name
        for field in message.DESCRIPTOR.fields
        if field.is_required and not message.HasField(field.name)
    ]
    for field, value in message.ListFields():
        if names:
            break
        if field.message_type is not None:
            for inner in value if field.is_repeated else (value,):
                if not inner.IsInitialized():
                    return f"{field.name}.{missing_fields(inner)}"
    return ", ".join(names)


class _Texts:
    """The string fields of one kind of message. Protobuf returns bytes if one is not UTF-8."""

    __slots__ = ("lists", "message_lists", "messages", "singles")

    def __init__(self) -> None:
        self.singles: list[str] = []
        self.lists: list[str] = []
        self.messages: list[tuple[str, _Texts]] = []
        self.message_lists: list[tuple[str, _Texts]] = []

    def are_text(self, message: Message) -> bool:
        for name in self.singles:
            if type(getattr(message, name)) is not str:
                return False
        for name in self.lists:
            if not all(type(item) is str for item in getattr(message, name)):
                return False
        for name, texts in self.messages:
            if message.HasField(name) and not texts.are_text(getattr(message, name)):
                return False
        for name, texts in self.message_lists:
            if not all(texts.are_text(item) for item in getattr(message, name)):
                return False
        return True


def _texts_in(descriptor: Any, outside: tuple[str, ...] = ()) -> _Texts | None:
    """Return the string fields of a kind of message, or None if there are none."""
    if descriptor.full_name in outside:
        return None
    found = _Texts()
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            (found.lists if field.is_repeated else found.singles).append(field.name)
        elif field.message_type is not None:
            inner = _texts_in(field.message_type, (*outside, descriptor.full_name))
            if inner is not None:
                where = found.message_lists if field.is_repeated else found.messages
                where.append((field.name, inner))
    has_any = found.singles or found.lists or found.messages or found.message_lists
    return found if has_any else None


def _type_name(command: BaseCommand) -> str:
    return BaseCommand.Type.Name(command.type)


_TEXTS_OF_TYPE: dict[int, _Texts | None] = {
    field.number: _texts_in(field.message_type)
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}
