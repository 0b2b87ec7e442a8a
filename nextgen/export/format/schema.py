"""The columns of an export, derived from the descriptor of ``Event``.

    position .. event_type   the envelope
    raw                      the whole event, where columns cannot represent it
    tenant_created, ...      a struct for each event type, null in rows of the others

Columns are derived for every type in ``events.proto``, so none can be forgotten. Their names and
types are a promise to readers: columns are only added (``README.md`` in this folder).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor

from protos.nextgen.v1.events_pb2 import Event

SCHEMA_VERSION = 14
"""Version of the columns, incremented by each change of ``events.proto`` that adds some."""

UNKNOWN_TYPE = "unknown"
"""``event_type`` of an event of a newer release, whose type this release does not know."""

PAYLOAD = "payload"

IS_PRESENT = "is_present"
"""The only column, always true, of a message without fields: Parquet has no empty structs."""

DEPTH_MAX = 8
"""Depth of nested messages at most: a message that contains itself cannot become columns."""

_SCALARS: dict[int, pa.DataType] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    # Readers on the JVM have no unsigned numbers; ``columns`` handles numbers that do not fit.
    FieldDescriptor.CPPTYPE_UINT64: pa.int64(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}

ENVELOPE: tuple[pa.Field, ...] = (
    pa.field("position", pa.int64(), nullable=False),
    pa.field("term", pa.int64(), nullable=False),
    pa.field("shard_id", pa.int32(), nullable=False),
    pa.field("time", pa.timestamp("ms", tz="UTC"), nullable=False),
    pa.field("causation_id", pa.binary()),
    pa.field("schema_version", pa.int32(), nullable=False),
    pa.field("event_type", pa.string(), nullable=False),
    pa.field("raw", pa.binary()),
)


def event_schema(event: Any = Event.DESCRIPTOR) -> pa.Schema:
    """Return the schema of exported files.

    Raises:
        TypeError: Columns cannot represent the shape of a payload.
    """
    return pa.schema([*ENVELOPE, *(pa.field(f.name, type_of(f)) for f in payload_fields(event))])


def payload_fields(event: Any = Event.DESCRIPTOR) -> list[FieldDescriptor]:
    """Return the fields of the event types, ordered by number."""
    return sorted(event.oneofs_by_name[PAYLOAD].fields, key=lambda field: field.number)


def type_of(field: FieldDescriptor, depth: int = 0) -> pa.DataType:
    """Return the type of the column for ``field``."""
    if depth > DEPTH_MAX:
        raise TypeError(f"{field.full_name} is nested too deeply for columns")
    if is_map(field):
        key, value = map_fields(field)
        return pa.map_(type_of(key, depth + 1), type_of(value, depth + 1))
    return pa.list_(_single(field, depth)) if field.is_repeated else _single(field, depth)


def is_map(field: FieldDescriptor) -> bool:
    """Return whether ``field`` is a map."""
    message: Any = field.message_type
    return bool(message and message.GetOptions().map_entry)


def map_fields(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    """Return the fields of the keys and of the values of a map."""
    entry: Any = field.message_type
    return entry.fields_by_name["key"], entry.fields_by_name["value"]


def _single(field: FieldDescriptor, depth: int) -> pa.DataType:
    if field.message_type is not None:
        inner = [pa.field(f.name, type_of(f, depth + 1)) for f in field.message_type.fields]
        return pa.struct(inner or [pa.field(IS_PRESENT, pa.bool_())])
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
    return _SCALARS[field.cpp_type]
