"""The columns of an export, derived from the descriptor of ``Event``.

    position .. event_type   the envelope
    raw                      the whole event, where columns cannot say all of it
    tenant_created, ...      a struct for each event type, null in rows of the others

Every type that ``events.proto`` has is a column, so none can be forgotten. What the columns are
named and typed is a promise to readers: it only grows (``README.md`` in this folder).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor

from protos.nextgen.v1.events_pb2 import Event

SCHEMA_VERSION = 4
"""Grows by one with each change of ``events.proto`` that adds columns."""

UNKNOWN_TYPE = "unknown"
"""``event_type`` of an event that a newer release wrote, of a type that this one has not."""

PAYLOAD = "payload"

IS_PRESENT = "is_present"
"""The one column, always true, of a message without fields: Parquet has no empty structs."""

DEPTH_MAX = 8
"""Of messages in messages: one that contains itself has no columns."""

_SCALARS: dict[int, pa.DataType] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    # Readers on the JVM have no unsigned numbers; see ``columns`` for what does not fit.
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
        TypeError: A payload has a shape that columns cannot have.
    """
    return pa.schema([*ENVELOPE, *(pa.field(f.name, type_of(f)) for f in payload_fields(event))])


def payload_fields(event: Any = Event.DESCRIPTOR) -> list[FieldDescriptor]:
    """Return the event types, by number."""
    return sorted(event.oneofs_by_name[PAYLOAD].fields, key=lambda field: field.number)


def type_of(field: FieldDescriptor, depth: int = 0) -> pa.DataType:
    """Return the type of the column that ``field`` becomes."""
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
    """Return what the keys and the values of a map are."""
    entry: Any = field.message_type
    return entry.fields_by_name["key"], entry.fields_by_name["value"]


def _single(field: FieldDescriptor, depth: int) -> pa.DataType:
    if field.message_type is not None:
        inner = [pa.field(f.name, type_of(f, depth + 1)) for f in field.message_type.fields]
        return pa.struct(inner or [pa.field(IS_PRESENT, pa.bool_())])
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
    return _SCALARS[field.cpp_type]
