"""Turns columns back into events, for programs that read events, and for checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nextgen.export.format.schema import IS_PRESENT, UNKNOWN_TYPE, is_map, map_fields
from protos.nextgen.v1.events_pb2 import Event

ROWS_AT_A_TIME = 16_384
"""Rows of a table that are converted to Python objects at a time."""


def events_of(table: pa.Table) -> Iterator[Event]:
    """Yield the events of a table in its order, each as it was in the log.

    A table of an older release lacks the columns of later event types. It has no such events.
    """
    for start in range(0, table.num_rows, ROWS_AT_A_TIME):
        yield from _events_of(table.slice(start, ROWS_AT_A_TIME))


def _events_of(table: pa.Table) -> Iterator[Event]:
    kinds = table["event_type"].to_pylist()
    payloads = {
        kind: iter(pc.drop_null(table[kind]).to_pylist())
        for kind in set(kinds)
        if kind != UNKNOWN_TYPE
    }
    times = table["time"].cast(pa.int64()).to_pylist()
    columns = (
        table[name].to_pylist()
        for name in ("position", "term", "shard_id", "causation_id", "schema_version", "raw")
    )
    for kind, time_ms, position, term, shard_id, cause, version, raw in zip(
        kinds, times, *columns, strict=True
    ):
        values = next(payloads[kind]) if kind != UNKNOWN_TYPE else None
        if raw is not None:
            yield Event.FromString(raw)
            continue
        event = Event(
            position=position,
            term=term,
            shard_id=shard_id,
            time_ms=time_ms,
            causation_id=cause or b"",
            schema_version=version,
        )
        if values is not None:
            payload = getattr(event, kind)
            payload.SetInParent()
            _fill(payload, values)
        yield event


def _fill(message: Any, values: dict[str, Any]) -> None:
    for field in message.DESCRIPTOR.fields:
        value = values.get(field.name)
        if value is None or field.name == IS_PRESENT:
            continue
        if is_map(field):
            _fill_map(getattr(message, field.name), field, value)
        elif field.message_type is not None:
            _fill_messages(message, field, value)
        elif field.is_repeated:
            getattr(message, field.name).extend([_scalar(field, one) for one in value])
        else:
            setattr(message, field.name, _scalar(field, value))


def _fill_map(target: Any, field: Any, pairs: list[tuple[Any, Any]]) -> None:
    item = map_fields(field)[1]
    for key, value in pairs:
        if item.message_type is not None:
            target[key].SetInParent()
            _fill(target[key], value)
        else:
            target[key] = _scalar(item, value)


def _fill_messages(message: Any, field: Any, value: Any) -> None:
    if field.is_repeated:
        for one in value:
            _fill(getattr(message, field.name).add(), one)
    else:
        inner = getattr(message, field.name)
        inner.SetInParent()
        _fill(inner, value)


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is None:
        return value
    known = field.enum_type.values_by_name
    return known[value].number if value in known else int(value)
