"""Counts the fields of a protobuf message before anything parses it.

A frame of 5 MB has room for two million repeated fields. Parsed, each is an object: a gigabyte,
and seconds to walk. Counting on the encoded bytes stops at the first field too many and makes no
objects. What cannot be counted is refused, so that no way of encoding gets around the count.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from nextgen.kernel.inbound_limits import COMMAND_FIELDS_MAX
from nextgen.kernel.pulsar_limits import REDELIVER_IDS_MAX
from nextgen.pulsar.frames import MalformedFrame
from protos.pulsar.PulsarApi_pb2 import BaseCommand, MessageMetadata

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_CONTINUED = 0x80
_TAG_BYTES_MAX = 5
_NUMBER_BYTES_MAX = 10

_Layout = dict[int, Any]
"""By field number what of a message has fields inside: a layout, ``_PACKED`` or ``_IDS``."""

_OPAQUE: Final = "one field"
_PACKED: Final = "numbers, each of at least one byte"
_IDS: Final = "message ids, which have a limit of their own"

_ID_LISTS = frozenset(
    {
        "pulsar.proto.CommandAck.message_id",
        "pulsar.proto.CommandRedeliverUnacknowledgedMessages.message_ids",
    }
)


class TooManyFields(MalformedFrame):
    """A message has more fields than any client has a use for. It MUST NOT be parsed."""


def check_command_fields(data: bytes) -> None:
    """Return if the ``BaseCommand`` in ``data`` is cheap to parse.

    Callers MUST do so before they parse one longer than ``COMMAND_COUNTED_BYTES_MIN``. A shorter
    one always is, and a comparison in place costs a SEND less than a call.

    Message ids of ACK and REDELIVER do not count as fields: of them ``REDELIVER_IDS_MAX`` and one
    are let through, so that their handlers can refuse one too many with an answer.

    Raises:
        TooManyFields: It has more than ``COMMAND_FIELDS_MAX`` fields, or cannot be counted.
    """
    _check(data, _COMMAND)


def check_metadata_fields(data: bytes) -> None:
    """Do as ``check_command_fields`` for the ``MessageMetadata`` in ``data``."""
    _check(data, _METADATA)


def _check(data: bytes, layout: _Layout) -> None:
    try:
        fields, ids = _count(data, layout)
    except IndexError:
        raise TooManyFields("a message ends inside a field") from None
    if fields > COMMAND_FIELDS_MAX or ids > REDELIVER_IDS_MAX + 1:
        raise TooManyFields(f"a message has more than {COMMAND_FIELDS_MAX} fields")


def _count(data: bytes, layout: _Layout) -> tuple[int, int]:
    """Return how many fields and ids there are, or what is counted when they are too many."""
    fields = ids = at = 0
    end = len(data)
    outside: list[tuple[int, _Layout]] = []
    while fields <= COMMAND_FIELDS_MAX and ids <= REDELIVER_IDS_MAX + 1:
        while at == end:
            if not outside:
                return fields, ids
            end, layout = outside.pop()
        tag, at = (data[at], at + 1) if data[at] < _CONTINUED else _number(data, at)
        fields += 1
        if tag & 7 != _LENGTH:
            at = _behind_number(data, at, tag & 7)
            if at > end:
                raise TooManyFields("a field is longer than what it is in")
            continue
        size, at = (data[at], at + 1) if data[at] < _CONTINUED else _number(data, at)
        if at + size > end:
            raise TooManyFields("a field is longer than what it is in")
        inner = layout.get(tag >> 3, _OPAQUE)
        if type(inner) is dict:
            outside.append((end, layout))
            end, layout = at + size, inner
            continue
        at += size
        fields += size if inner is _PACKED else -(inner is _IDS)
        ids += inner is _IDS
    return fields, ids


def _behind_number(data: bytes, at: int, wire_type: int) -> int:
    """Return where a field ends whose content begins at ``at``."""
    if wire_type == _VARINT:
        for place in range(at, at + _NUMBER_BYTES_MAX):
            if data[place] < _CONTINUED:
                return place + 1
        raise TooManyFields("a number has more bytes than any has")
    if wire_type == _FIXED64:
        return at + 8
    if wire_type == _FIXED32:
        return at + 4
    raise TooManyFields(f"a field has wire type {wire_type}, which nothing uses")


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the tag or size that begins at ``at``, and where it ends."""
    number = 0
    for place in range(_TAG_BYTES_MAX):
        byte = data[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < _CONTINUED:
            return number, at + place + 1
    raise TooManyFields("a tag or a size has more bytes than any has")


def _layout_of(descriptor: Any, known: dict[str, _Layout]) -> _Layout:
    """Return where the fields of a kind of message are; a kind may contain itself."""
    layout = known.get(descriptor.full_name)
    if layout is not None:
        return layout
    layout = known[descriptor.full_name] = {}
    for field in descriptor.fields:
        if field.full_name in _ID_LISTS:
            layout[field.number] = _IDS
        elif field.message_type is not None:
            layout[field.number] = _layout_of(field.message_type, known)
        elif field.is_repeated and field.type not in _TEXTS:
            layout[field.number] = _PACKED
    return layout


_TEXTS = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})
_COMMAND: Final = _layout_of(BaseCommand.DESCRIPTOR, {})
_METADATA: Final = _layout_of(MessageMetadata.DESCRIPTOR, {})
