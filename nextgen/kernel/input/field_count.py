"""Counts the fields of a protobuf message before anything parses it.

A message of a few megabytes has room for two million repeated fields. Parsed, each is an object: a
gigabyte, and seconds to walk. Counting the encoded bytes stops at the first field too many and
makes no objects. Bytes that cannot be counted are refused, so that no encoding evades the count.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_CONTINUED = 0x80
_TAG_BYTES_MAX = 5
_NUMBER_BYTES_MAX = 10
_TEXTS = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})

Layout = dict[int, Any]
"""The fields of a message that have fields inside, by number: a layout, ``_PACKED`` or
``_LISTED``."""

_OPAQUE: Final = "one field"
_PACKED: Final = "numbers, each of at least one byte"
_LISTED: Final = "messages that are counted apart"


class Uncountable(ValueError):
    """The bytes are not a message as any library writes it. They MUST NOT be parsed."""


def count_fields(
    data: bytes,
    layout: Layout,
    *,
    fields_max: int,
    listed_max: int = 0,
    listed_bytes_max: int = 0,
) -> tuple[int, int, int]:
    """Return how many fields, listed messages and bytes of listed messages there are.

    Counting stops when one of them is too many. Nothing is parsed, and no objects are made.

    Raises:
        Uncountable: The bytes are no message, or use an encoding that no library writes.
    """
    try:
        return _count(data, layout, fields_max, listed_max, listed_bytes_max)
    except IndexError:
        raise Uncountable("a message ends inside a field") from None


def _count(
    data: bytes, layout: Layout, fields_max: int, listed_max: int, listed_bytes_max: int
) -> tuple[int, int, int]:
    fields = listed = listed_bytes = at = 0
    end = len(data)
    outside: list[tuple[int, Layout]] = []
    while fields <= fields_max and listed <= listed_max and listed_bytes <= listed_bytes_max:
        while at == end:
            if not outside:
                return fields, listed, listed_bytes
            end, layout = outside.pop()
        tag, at = (data[at], at + 1) if data[at] < _CONTINUED else _number(data, at)
        fields += 1
        if tag & 7 != _LENGTH:
            at = _behind_number(data, at, tag & 7)
            if at > end:
                raise Uncountable("a field is longer than what it is in")
            continue
        size, at = (data[at], at + 1) if data[at] < _CONTINUED else _number(data, at)
        if at + size > end:
            raise Uncountable("a field is longer than what it is in")
        inner = layout.get(tag >> 3, _OPAQUE)
        if type(inner) is dict:
            outside.append((end, layout))
            end, layout = at + size, inner
            continue
        at += size
        if inner is _LISTED:
            fields, listed, listed_bytes = fields - 1, listed + 1, listed_bytes + size
        elif inner is _PACKED:
            fields += size
    return fields, listed, listed_bytes


def _behind_number(data: bytes, at: int, wire_type: int) -> int:
    """Return where a field ends whose content begins at ``at``."""
    if wire_type == _VARINT:
        for place in range(at, at + _NUMBER_BYTES_MAX):
            if data[place] < _CONTINUED:
                return place + 1
        raise Uncountable("a number has more bytes than any has")
    if wire_type == _FIXED64:
        return at + 8
    if wire_type == _FIXED32:
        return at + 4
    raise Uncountable(f"a field has wire type {wire_type}, which nothing uses")


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the tag or size that begins at ``at``, and where it ends."""
    number = 0
    for place in range(_TAG_BYTES_MAX):
        byte = data[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < _CONTINUED:
            return number, at + place + 1
    raise Uncountable("a tag or a size has more bytes than any has")


def layout_of(descriptor: Any, listed: frozenset[str] = frozenset()) -> Layout:
    """Return where the fields of a kind of message are.

    Messages in the repeated fields that ``listed`` names are not looked into: they are counted
    apart from fields.
    """
    return _layout_of(descriptor, listed, {})


def _layout_of(descriptor: Any, listed: frozenset[str], known: dict[str, Layout]) -> Layout:
    # A kind may contain itself.
    layout = known.get(descriptor.full_name)
    if layout is not None:
        return layout
    layout = known[descriptor.full_name] = {}
    for field in descriptor.fields:
        if field.full_name in listed:
            layout[field.number] = _LISTED
        elif field.message_type is not None:
            layout[field.number] = _layout_of(field.message_type, listed, known)
        elif field.is_repeated and field.type not in _TEXTS:
            layout[field.number] = _PACKED
    return layout
