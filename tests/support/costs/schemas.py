"""Schemas that cost a broker the most processor time within the limits, one for each cause.

Each case is a function of a version: of all versions of a case only the data differs, so that a
newcomer is compared with each of them in full and refused by the last. So it costs the same again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from nextgen.kernel.limits.pulsar import SCHEMA_BYTES_MAX
from protos.pulsar.PulsarApi_pb2 import Schema

NAME = "s"
_ROOM = SCHEMA_BYTES_MAX - 1_024
"""Bytes of the costly part: the rest is what makes a version differ, and the message around it."""

Case = Callable[[], Any]


def wide_record() -> Any:
    """Return a record of as many fields as there is room for."""
    return _filled(lambda n: {"name": f"f{n}", "type": "int", "default": 0})


def fields_of_one_large_enum() -> Any:
    """Return half of the room of symbols, and fields that all name the same enum."""
    symbols = _filled(lambda n: f"s{n}", _ROOM // 2 - 100)
    enum = {"type": "enum", "name": "e", "symbols": symbols}
    first = {"name": "first", "type": enum}
    return [first, *_filled(lambda n: {"name": f"f{n}", "type": "e"}, _ROOM // 2)]


def many_small_records() -> Any:
    """Return fields that are records of their own, so that there are many named types."""
    return _filled(
        lambda n: {"name": f"f{n}", "type": {"type": "record", "name": f"r{n}", "fields": []}}
    )


def wide_unions() -> Any:
    """Return two unions of many records, which are compared branch by branch."""

    def union(name: str) -> list[Any]:
        half = _ROOM // 2 - 100
        return _filled(lambda n: {"type": "record", "name": f"{name}{n}", "fields": []}, half)

    return [{"name": name, "type": union(name)} for name in ("one", "other")]


def long_unions_of_names() -> Any:
    """Return a union of as many names of one type as there is room for."""
    record = {"type": "record", "name": "r", "fields": []}
    return [{"name": "f", "type": [record, *["r"] * (_ROOM // 4 - 20)]}]


def deep_records() -> Any:
    """Return records inside records, as deep as they are parsed, each with some fields."""
    inside: Any = "int"
    for n in range(120):
        others = [{"name": f"o{n}x{k}", "type": "int", "default": 0} for k in range(42)]
        fields = [{"name": "d", "type": inside}, *others]
        inside = {"type": "record", "name": f"r{n}", "fields": fields}
    return [{"name": "deep", "type": inside}]


def deep_arrays() -> Any:
    """Return fields of nested arrays, a wrapping and an array in turn."""

    def nested() -> Any:
        inside: Any = "int"
        for _ in range(60):
            inside = {"type": {"type": "array", "items": inside}}
        return inside

    return _filled(lambda n: {"name": f"f{n}", "type": nested()})


def escaped_names() -> Any:
    """Return names that are escaped character by character."""
    return _filled(lambda n: {"name": "é" * 20 + str(n), "type": "int", "default": 0})


CASES: dict[str, Case] = {
    case.__name__: case
    for case in (
        wide_record,
        fields_of_one_large_enum,
        many_small_records,
        wide_unions,
        long_unions_of_names,
        deep_records,
        deep_arrays,
        escaped_names,
    )
}


def versions(case: Case, count: int) -> tuple[list[Schema], Schema]:
    """Return ``count`` versions, and a new schema compatible with all of them but the last."""
    fields = case()

    def made(number: int, kind: str) -> Schema:
        last = {"name": "last", "type": kind, "default": None}
        record = {"type": "record", "name": "v", "doc": str(number), "fields": [*fields, last]}
        data = json.dumps(record, separators=(",", ":")).encode()
        schema = Schema(name=NAME, schema_data=data, type=Schema.Avro)
        assert SCHEMA_BYTES_MAX // 4 < schema.ByteSize() <= SCHEMA_BYTES_MAX, case.__name__
        return schema

    stored = [made(number, "int" if number + 1 < count else "boolean") for number in range(count)]
    return stored, made(count, "int")


def _filled(item: Callable[[int], Any], room: int = _ROOM) -> list[Any]:
    """Return as many items as their JSON has room for."""
    size, found = 0, []
    while True:
        each = item(len(found))
        size += len(json.dumps(each, separators=(",", ":"))) + 1
        if size > room:
            return found
        found.append(each)
