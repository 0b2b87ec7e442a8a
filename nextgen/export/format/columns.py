"""Turns events into columns: by type and field, never row by row.

Columns cannot represent every event: not a type or field that this release does not know, and not
a number beyond 63 bits (its column gets the largest number that fits). Such an event is also kept
whole in ``raw``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, compress
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from nextgen.export.format.schema import (
    IS_PRESENT,
    PAYLOAD,
    UNKNOWN_TYPE,
    event_schema,
    is_map,
    map_fields,
    payload_fields,
    type_of,
)
from protos.nextgen.v1.events_pb2 import Event

INT64_MAX = 2**63 - 1


class EventColumns:
    """Builds tables of the schema of ``event``. Keeps no reference to them."""

    def __init__(self, event: Any = Event.DESCRIPTOR) -> None:
        self.schema = event_schema(event)
        self._payloads = {field.name: field for field in payload_fields(event)}

    def table(self, events: Sequence[Any]) -> pa.Table:
        """Return the table of ``events``, in their order, one row each."""
        kinds = [event.WhichOneof(PAYLOAD) or UNKNOWN_TYPE for event in events]
        event_types = pa.array(kinds, pa.string())
        whole = {row for row, kind in enumerate(kinds) if kind == UNKNOWN_TYPE}
        whole.update(_with_unknown(events))
        payloads = {}
        for kind in set(kinds) - {UNKNOWN_TYPE}:
            rows = [row for row, each in enumerate(kinds) if each == kind]
            dense, told_less = self._payload(kind, [events[row] for row in rows])
            whole.update([rows[place] for place in told_less])
            payloads[kind] = _spread(dense, pc.equal(event_types, kind))
        envelope = _envelope(events, event_types, whole)
        arrays = [
            payloads[field.name] if field.name in payloads else pa.nulls(len(events), field.type)
            for field in list(self.schema)[len(envelope) :]
        ]
        return pa.Table.from_arrays([*envelope, *arrays], schema=self.schema)

    def _payload(self, kind: str, events: Sequence[Any]) -> tuple[pa.Array, list[int]]:
        """Return the column of events of one type, and the indexes of events that it cannot
        represent whole."""
        field = self._payloads[kind]
        messages = list(map(attrgetter(kind), events))
        if _message_fields(field.message_type):
            told_less = [place for place, one in enumerate(messages) if _has_unknown(one)]
        else:
            told_less = _with_unknown(messages)
        try:
            return _structs(messages, field.message_type), told_less
        except OverflowError:
            fitting = [_saturated(message) for message in messages]
            changed = [place for place, one in enumerate(messages) if one is not fitting[place]]
            return _structs(fitting, field.message_type), told_less + changed


def _envelope(events: Sequence[Any], event_types: pa.Array, whole: set[int]) -> list[Any]:
    times = [event.time_ms for event in events]
    if times and max(times) > INT64_MAX:
        whole |= {row for row, time_ms in enumerate(times) if time_ms > INT64_MAX}
        times = [min(time_ms, INT64_MAX) for time_ms in times]
    raw = (
        [
            event.SerializeToString(deterministic=True) if row in whole else None
            for row, event in enumerate(events)
        ]
        if whole
        else None
    )
    return [
        _numbers(events, "position", pa.int64()),
        _numbers(events, "term", pa.int64()),
        _numbers(events, "shard_id", pa.int32()),
        pa.array(times, pa.timestamp("ms", tz="UTC")),
        pa.array([event.causation_id or None for event in events], pa.binary()),
        _numbers(events, "schema_version", pa.int32()),
        event_types,
        pa.nulls(len(events), pa.binary()) if raw is None else pa.array(raw, pa.binary()),
    ]


def _numbers(events: Iterable[Any], name: str, type_: pa.DataType) -> pa.Array:
    return pa.array(list(map(attrgetter(name), events)), type_)


def _spread(dense: pa.Array, is_there: pa.Array) -> pa.Array:
    """Return the values of ``dense`` in the rows where ``is_there`` holds, null in the others."""
    if len(dense) == len(is_there):
        return dense
    places = pc.subtract(pc.cumulative_sum(pc.cast(is_there, pa.int32())), 1)
    return dense.take(pc.if_else(is_there, places, pa.scalar(None, pa.int32())))


def _structs(messages: Sequence[Any], descriptor: Any) -> pa.Array:
    if not descriptor.fields:
        present = pa.array([True] * len(messages), pa.bool_())
        return pa.StructArray.from_arrays([present], names=[IS_PRESENT])
    return pa.StructArray.from_arrays(
        [_column(messages, field) for field in descriptor.fields],
        fields=[pa.field(field.name, type_of(field)) for field in descriptor.fields],
    )


def _column(messages: Sequence[Any], field: FieldDescriptor) -> pa.Array:
    values: list[Any] = list(map(attrgetter(field.name), messages))
    if is_map(field):
        return _maps(values, field)
    if field.is_repeated:
        offsets = pa.array([0, *accumulate(map(len, values))], pa.int32())
        return pa.ListArray.from_arrays(
            offsets, _values([one for each in values for one in each], field), type=type_of(field)
        )
    if field.message_type is not None:
        is_there = [one.HasField(field.name) for one in messages]
        return _spread(_values(list(compress(values, is_there)), field), pa.array(is_there))
    return _values(values, field)


def _maps(values: Sequence[Any], field: FieldDescriptor) -> pa.Array:
    key, value = map_fields(field)
    sizes = list(map(len, values))
    keys: list[Any] = []
    items: list[Any] = []
    for each in compress(values, sizes):
        for one in sorted(each):
            keys.append(one)
            items.append(each[one])
    offsets = pa.array([0, *accumulate(sizes)], pa.int32())
    return pa.MapArray.from_arrays(
        offsets, _values(keys, key), _values(items, value), type=type_of(field)
    )


def _values(values: list[Any], field: FieldDescriptor) -> pa.Array:
    """Return a column of ``values``, of the type of ``field``, which may be repeated."""
    if field.message_type is not None:
        return _structs(values, field.message_type)
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        values = [names[one].name if one in names else str(one) for one in values]
        return pa.array(values, pa.string())
    type_ = type_of(field)
    if field.is_repeated:
        type_ = type_.value_type
    return pa.array(values, type_)


def _with_unknown(messages: Sequence[Any]) -> list[int]:
    """Return the indexes of messages with fields that this release does not know."""
    if not any(map(len, map(UnknownFieldSet, messages))):
        return []
    return [place for place, one in enumerate(messages) if len(UnknownFieldSet(one))]


def _has_unknown(message: Any) -> bool:
    """Return whether ``message``, or a message in it, has unknown fields."""
    return len(UnknownFieldSet(message)) > 0 or any(
        _has_unknown(inner)
        for field in _message_fields(message.DESCRIPTOR)
        for inner in _inner(message, field)
    )


def _message_fields(descriptor: Any) -> tuple[FieldDescriptor, ...]:
    found = _MESSAGE_FIELDS.get(descriptor.full_name)
    if found is None:
        found = tuple(
            field
            for field in descriptor.fields
            if field.message_type is not None
            and (not is_map(field) or map_fields(field)[1].message_type is not None)
        )
        _MESSAGE_FIELDS[descriptor.full_name] = found
    return found


_MESSAGE_FIELDS: dict[str, tuple[FieldDescriptor, ...]] = {}
"""Cache by message type; bounded by the number of types in the contracts."""


def _inner(message: Any, field: FieldDescriptor) -> Iterable[Any]:
    value = getattr(message, field.name)
    if is_map(field):
        return list(value.values())
    if field.is_repeated:
        return list(value)
    return [value] if message.HasField(field.name) else []


def _saturated(message: Any) -> Any:
    """Return ``message`` if its numbers fit 63 bits, else a copy with those that do not reduced."""
    copied = type(message)()
    copied.CopyFrom(message)
    return copied if _saturate(copied) else message


def _saturate(message: Message) -> bool:
    changed = False
    for field, value in message.ListFields():
        if is_map(field):
            changed |= _saturate_map(field, value)
        elif field.message_type is not None:
            inner = list(value) if field.is_repeated else [value]
            changed |= any([_saturate(one) for one in inner])
        elif field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
            small: Callable[[int], int] = lambda number: min(number, INT64_MAX)  # noqa: E731
            if field.is_repeated:
                changed |= max(value, default=0) > INT64_MAX
                value[:] = [small(one) for one in value]
            elif value > INT64_MAX:
                setattr(message, field.name, INT64_MAX)
                changed = True
    return changed


def _saturate_map(field: FieldDescriptor, value: Any) -> bool:
    changed = False
    item = map_fields(field)[1]
    for key in list(value):
        if item.message_type is not None:
            changed |= _saturate(value[key])
        elif item.cpp_type == FieldDescriptor.CPPTYPE_UINT64 and value[key] > INT64_MAX:
            value[key] = INT64_MAX
            changed = True
    return changed
