"""The most expensive messages of a protobuf type, made from its descriptor.

For every field, however deep, that may occur often or be long there are messages that are full of
it: of the smallest entries there are, of entries that look like real ones, and of long ones. What
surrounds the field is plausible, so that a server gets as far as that field. A field that is added
to a contract is covered by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

Given = Mapping[str, Any]
"""Plausible values by a field's name; a function is called with the number of the entry."""

NESTING_MAX = 5
NAMED_ENTRIES = 500
"""Different entries of one field; beyond it they repeat."""

LONG_BYTES = 16 * 1024
INNER_ENTRIES = (16, 1_000)
"""Entries of a repeated field in each of many entries of another."""

_LENGTH_DELIMITED = 2
_WIRE_TYPES = {
    FieldDescriptor.TYPE_DOUBLE: 1,
    FieldDescriptor.TYPE_FIXED64: 1,
    FieldDescriptor.TYPE_SFIXED64: 1,
    FieldDescriptor.TYPE_FLOAT: 5,
    FieldDescriptor.TYPE_FIXED32: 5,
    FieldDescriptor.TYPE_SFIXED32: 5,
}
_PYTHON_TYPES: dict[int, type] = {FieldDescriptor.CPPTYPE_STRING: str | bytes}  # type: ignore[dict-item]
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


@dataclass(frozen=True)
class CostlyMessage:
    """One message of at most ``bytes_max``. ``path`` leads to the field that it is full of.

    Serialised only when it is sent: those of a whole server are gigabytes.
    """

    path: str
    shape: str
    bytes_max: int
    serialise: Callable[[], bytes]

    @property
    def name(self) -> str:
        return f"{self.path} {self.shape} {self.bytes_max:,}"


def costly_messages(
    kind: type[Message], *, bytes_max: int, given: Given, with_long: bool = True
) -> Iterator[CostlyMessage]:
    """Yield messages of at most ``bytes_max`` for each field that can make one expensive."""
    for path in paths_of(kind.DESCRIPTOR):
        name = ".".join(field.name for field in path)
        for shape, fill in _fills(path, given, with_long=with_long):
            serialise = partial(_message, path, bytes_max, given, fill)
            yield CostlyMessage(name, shape, bytes_max, serialise)


def paths_of(descriptor: Descriptor, nesting: int = 0) -> Iterator[tuple[FieldDescriptor, ...]]:
    """Yield the ways to every field that may occur often, or holds text or bytes."""
    for field in descriptor.fields:
        if field.is_repeated or field.type in _TEXTS:
            yield (field,)
        if field.message_type is not None and nesting < NESTING_MAX:
            for rest in paths_of(field.message_type, nesting + 1):
                yield (field, *rest)


def plausible(descriptor: Descriptor, given: Given, *, number: int = 0, every: bool = False) -> Any:
    """Return a message whose required and given fields are set; with ``every``, all of them."""
    return _plausible(descriptor, given, number, every, NESTING_MAX)


Fill = Callable[[int], bytes]
"""Returns the given number of bytes of one field's entries."""


def _fills(
    path: Sequence[FieldDescriptor], given: Given, *, with_long: bool
) -> Iterator[tuple[str, Fill]]:
    field = path[-1]
    if not field.is_repeated:
        yield "longest", lambda room: _long(field, room)
        return
    tiny = _entry(field, _tiny(field, given))
    yield "tiny", lambda room: tiny * (room // len(tiny))
    yield "named", lambda room: _repeated(_named_entries(field, given), room)
    if with_long and field.type in _TEXTS:
        long = _entry(field, b"x" * LONG_BYTES)
        yield "long", lambda room: long * (room // len(long))
    if any(outer.is_repeated for outer in path[:-1]):
        for count in INNER_ENTRIES:
            yield f"{count} in each", lambda room, count=count: tiny * min(count, room // len(tiny))


def _message(path: Sequence[FieldDescriptor], bytes_max: int, given: Given, fill: Fill) -> bytes:
    """Return the message around the last field of ``path``, outer repeated fields filled too."""
    room = bytes_max
    around: list[bytes] = []
    descriptor = path[0].containing_type
    for field in path:
        message = plausible(descriptor, given)
        message.ClearField(field.name)
        around.append(message.SerializePartialToString())
        # A tag and a size of the longest for each message that surrounds this one.
        room -= len(around[-1]) + 10
        descriptor = field.message_type
    content = around[-1] + fill(max(room, 0))
    for place in range(len(path) - 2, -1, -1):
        entry = _entry(path[place], content)
        if path[place].is_repeated:
            entry *= max(1, (bytes_max - sum(map(len, around[: place + 1]))) // len(entry))
        content = around[place] + entry
    return content


def _named_entries(field: FieldDescriptor, given: Given) -> list[bytes]:
    return [_entry(field, _named(field, given, number)) for number in range(NAMED_ENTRIES)]


def _repeated(entries: Sequence[bytes], room: int) -> bytes:
    whole = b"".join(entries)
    if len(whole) <= room:
        return whole * (room // len(whole))
    length = sum(map(len, entries)) // len(entries)
    return b"".join(entries[: room // (length + 2)])


def _entry(field: FieldDescriptor, value: bytes) -> bytes:
    """Return one occurrence of ``field``: its tag, and its value with a size if it has one."""
    if field.message_type is not None or field.type in _TEXTS:
        return varint(field.number << 3 | _LENGTH_DELIMITED) + varint(len(value)) + value
    return varint(field.number << 3 | _WIRE_TYPES.get(field.type, 0)) + value


def _tiny(field: FieldDescriptor, given: Given) -> bytes:
    if field.message_type is not None:
        return bytes(_plausible(field.message_type, {}, 0, False, 1).SerializePartialToString())
    if field.type in _TEXTS:
        return b""
    return b"\x00" * {1: 8, 5: 4}.get(_WIRE_TYPES.get(field.type, 0), 1)


def _named(field: FieldDescriptor, given: Given, number: int) -> bytes:
    if field.message_type is not None:
        message = _plausible(field.message_type, given, number, True, 2)
        return bytes(message.SerializePartialToString())
    value = _value(field, given, number)
    if field.type in _TEXTS:
        return value.encode() if isinstance(value, str) else bytes(value)
    if field.type in _WIRE_TYPES:
        return _tiny(field, given)
    return varint(int(value) % 2**64)


def _long(field: FieldDescriptor, room: int) -> bytes:
    return _entry(field, b"x" * max(0, room - 10))


def _plausible(descriptor: Descriptor, given: Given, number: int, every: bool, nesting: int) -> Any:
    message = descriptor._concrete_class()
    for field in descriptor.fields:
        is_wanted = field.is_required or every or field.name in given
        if not is_wanted or (field.containing_oneof and _is_chosen(message, field)):
            continue
        if field.message_type is not None:
            if nesting == 0 and not field.is_required:
                continue
            if field.message_type.GetOptions().map_entry:
                continue
            inner = _plausible(field.message_type, given, number, every, max(0, nesting - 1))
            place = getattr(message, field.name)
            if field.is_repeated:
                place.append(inner)
            else:
                place.CopyFrom(inner)
                place.SetInParent()
        elif field.is_repeated:
            getattr(message, field.name).append(_value(field, given, number))
        else:
            setattr(message, field.name, _value(field, given, number))
    return message


def _is_chosen(message: Any, field: FieldDescriptor) -> bool:
    return message.WhichOneof(field.containing_oneof.name) is not None


def _value(field: FieldDescriptor, given: Given, number: int) -> Any:
    value = given.get(field.name)
    if callable(value):
        value = value(number)
    # One name may stand for a text here and for a number there.
    if value is not None and isinstance(value, _PYTHON_TYPES.get(field.cpp_type, int)):
        return value
    if field.type == FieldDescriptor.TYPE_STRING:
        return f"n{number}"
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"n%d" % number
    if field.enum_type is not None:
        return field.enum_type.values[0].number
    if field.type == FieldDescriptor.TYPE_BOOL:
        return True
    return number


def varint(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
