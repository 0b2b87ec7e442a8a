"""Counts the fields of a Pulsar command before anything parses it, by ``kernel.input.field_count``.

A frame of 5 MB has room for two million key-value pairs, which as objects are a gigabyte.
"""

from __future__ import annotations

from nextgen.kernel.input.field_count import Layout, Uncountable, count_fields, layout_of
from nextgen.kernel.limits.inbound import COMMAND_FIELDS_MAX
from nextgen.kernel.limits.pulsar import MESSAGE_IDS_BYTES_MAX, REDELIVER_IDS_MAX
from nextgen.pulsar.frames import MalformedFrame
from protos.pulsar.PulsarApi_pb2 import BaseCommand, MessageMetadata

_ID_LISTS = frozenset(
    {
        "pulsar.proto.CommandAck.message_id",
        "pulsar.proto.CommandRedeliverUnacknowledgedMessages.message_ids",
    }
)
_COMMAND = layout_of(BaseCommand.DESCRIPTOR, _ID_LISTS)
_METADATA = layout_of(MessageMetadata.DESCRIPTOR)


class TooManyFields(MalformedFrame):
    """A message has more fields than any client has a use for. It MUST NOT be parsed."""


def check_command_fields(data: bytes) -> None:
    """Return if the ``BaseCommand`` in ``data`` is cheap to parse.

    Callers MUST call this before they parse a command longer than ``COMMAND_COUNTED_BYTES_MIN``. A
    shorter one is always cheap, and for a SEND the caller's comparison costs less than a call.

    Message ids of ACK and REDELIVER do not count as fields: of them ``REDELIVER_IDS_MAX`` and one
    are let through, so that their handlers can refuse one too many with an answer.

    Raises:
        TooManyFields: It has more than ``COMMAND_FIELDS_MAX`` fields or ``MESSAGE_IDS_BYTES_MAX``
            bytes of message ids, or cannot be counted.
    """
    _check(data, _COMMAND)


def check_metadata_fields(data: bytes) -> None:
    """Do as ``check_command_fields`` for the ``MessageMetadata`` in ``data``."""
    _check(data, _METADATA)


def _check(data: bytes, layout: Layout) -> None:
    try:
        fields, ids, ids_bytes = count_fields(
            data,
            layout,
            fields_max=COMMAND_FIELDS_MAX,
            listed_max=REDELIVER_IDS_MAX + 1,
            listed_bytes_max=MESSAGE_IDS_BYTES_MAX,
        )
    except Uncountable as error:
        raise TooManyFields(str(error)) from None
    if fields > COMMAND_FIELDS_MAX or ids > REDELIVER_IDS_MAX + 1:
        raise TooManyFields(f"a message has more than {COMMAND_FIELDS_MAX} fields")
    if ids_bytes > MESSAGE_IDS_BYTES_MAX:
        raise TooManyFields(f"message ids have more than {MESSAGE_IDS_BYTES_MAX} bytes")
