"""Whether what was written with one schema can be read with another one.

Of Avro's resolution rules (Avro 1.11, "Schema Resolution") these count: record fields are matched
by name, a field that only the reader has needs a default, numbers may be widened, a union is read
branch by branch. As in Pulsar records may be called differently. Aliases are not followed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from brokers.domain.schema import STRUCTURES, Schema, SchemaKind
from nextgen.kernel.pulsar_limits import SCHEMA_COMPARISONS_MAX

_WIDER: Mapping[str, frozenset[str]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_COMPLEX = _NAMED | {"array", "map"}


class InvalidSchema(ValueError):
    """The data is no schema of its kind. The message is one sentence."""


def check_schema(schema: Schema) -> None:
    """Return if the data can be what its kind says.

    Raises:
        InvalidSchema: It cannot.
    """
    if schema.kind in STRUCTURES:
        _Avro(schema.data)


def reading_obstacle(reader: Schema, writer: Schema) -> str | None:
    """Return why data of ``writer`` cannot be read with ``reader``, None if it can."""
    if reader.kind != writer.kind:
        return f"schema type {reader.kind} does not go with type {writer.kind}"
    if reader.data == writer.data:
        return None
    if reader.kind in STRUCTURES:
        try:
            return _Resolution(_Avro(reader.data), _Avro(writer.data)).obstacle()
        except InvalidSchema as error:
            return str(error)
    if reader.kind in (SchemaKind.KEY_VALUE, SchemaKind.PROTOBUF_NATIVE):
        return "schemas of this type must be equal"
    return None


class _TooManyComparisons(Exception):
    """Going on would keep everybody else waiting."""


class _Avro:
    """A parsed Avro schema: its root, and its named types under every name they are called by."""

    def __init__(self, data: bytes) -> None:
        self.types: dict[str, dict[str, Any]] = {}
        try:
            self.root = json.loads(data)
            self._collect(self.root, "")
        except (ValueError, RecursionError) as error:
            raise InvalidSchema(f"schema data is no Avro schema: {error}") from error

    def _collect(self, schema: Any, namespace: str) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._collect(branch, namespace)
        elif isinstance(schema, dict):
            self._collect_object(schema, namespace)
        elif not isinstance(schema, str):
            raise InvalidSchema(f"schema data has {schema!r} in the place of a type")
        elif schema not in _PRIMITIVES and schema not in self.types:
            raise InvalidSchema(f"schema data speaks of the unknown type {schema[:80]!r}")

    def _collect_object(self, schema: dict[str, Any], namespace: str) -> None:
        kind = schema.get("type")
        if isinstance(kind, dict | list):
            self._collect(kind, namespace)
        elif kind in _NAMED:
            self._collect_named(schema, kind, namespace)
        elif kind in ("array", "map"):
            self._collect(schema.get("items" if kind == "array" else "values"), namespace)
        else:
            self._collect(kind, namespace)

    def _collect_named(self, schema: dict[str, Any], kind: str, namespace: str) -> None:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidSchema(f"schema data has a {kind} without a name")
        namespace = schema.get("namespace", name.rpartition(".")[0] or namespace)
        simple = name.rpartition(".")[2]
        for known_as in (name, simple, f"{namespace}.{simple}"):
            self.types[known_as] = schema
        symbols = schema.get("symbols")
        if kind == "enum" and not (
            isinstance(symbols, list) and all(isinstance(symbol, str) for symbol in symbols)
        ):
            raise InvalidSchema(f"schema data has enum {name!r} without symbols")
        if kind in ("record", "error"):
            for field in _fields_of(schema):
                self._collect(field["type"], namespace)


def _fields_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    fields = record.get("fields")
    if not isinstance(fields, list):
        raise InvalidSchema(f"schema data has record {record.get('name')!r} without fields")
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str):
            raise InvalidSchema(f"schema data has a field of {record.get('name')!r} without name")
        if "type" not in field:
            raise InvalidSchema(f"schema data has a field of {record.get('name')!r} without type")
    return fields


class _Resolution:
    """Goes through two schemas side by side; records that contain themselves are met once."""

    def __init__(self, reader: _Avro, writer: _Avro) -> None:
        self._reader = reader
        self._writer = writer
        self._met: set[tuple[int, int]] = set()
        self._comparisons_left = SCHEMA_COMPARISONS_MAX

    def obstacle(self) -> str | None:
        try:
            return self._between(self._reader.root, self._writer.root, "the schema")
        except RecursionError:
            return "the schemas are nested too deeply"
        except _TooManyComparisons:
            return "the schemas are too large to be compared"

    def _between(self, reader: Any, writer: Any, where: str) -> str | None:
        self._comparisons_left -= 1
        if self._comparisons_left < 0:
            raise _TooManyComparisons
        reader, writer = _resolved(reader, self._reader), _resolved(writer, self._writer)
        if isinstance(writer, list):
            found = (self._between(reader, branch, where) for branch in writer)
            return next((problem for problem in found if problem is not None), None)
        if isinstance(reader, list):
            if any(self._between(branch, writer, where) is None for branch in reader):
                return None
            return f"{where} has no branch for {_kind(writer)}"
        reader_kind, writer_kind = _kind(reader), _kind(writer)
        if reader_kind != writer_kind:
            if reader_kind in _WIDER.get(writer_kind, ()):
                return None
            return f"{where} is {reader_kind} on one side and {writer_kind} on the other"
        return self._of_one_kind(reader, writer, reader_kind, where)

    def _of_one_kind(self, reader: Any, writer: Any, kind: str, where: str) -> str | None:
        if kind == "array":
            return self._between(reader["items"], writer["items"], f"an item of {where}")
        if kind == "map":
            return self._between(reader["values"], writer["values"], f"a value of {where}")
        if kind not in _NAMED:
            return None
        if kind in ("record", "error"):
            # Whatever they are called: a class that was renamed writes the same.
            return self._of_records(reader, writer, where)
        if _simple_name(reader) != _simple_name(writer):
            return f"{where} is {_simple_name(reader)} and {_simple_name(writer)}"
        if kind == "enum":
            missing = set(writer["symbols"]) - set(reader["symbols"])
            if missing and "default" not in reader:
                return f"{where} lacks the symbol {min(missing)}"
        elif kind == "fixed" and reader.get("size") != writer.get("size"):
            return f"{where} has two sizes"
        return None

    def _of_records(self, reader: Any, writer: Any, where: str) -> str | None:
        pair = (id(reader), id(writer))
        if pair in self._met:
            return None
        self._met.add(pair)
        written = {field["name"]: field for field in _fields_of(writer)}
        for field in _fields_of(reader):
            name = field["name"]
            if name in written:
                problem = self._between(
                    field["type"], written[name]["type"], f"field {name} of {where}"
                )
                if problem is not None:
                    return problem
            elif "default" not in field:
                return f"field {name} of {where} is on one side only and has no default"
        return None


def _resolved(schema: Any, avro: _Avro) -> Any:
    """Follow names and wrappings to a primitive's name, a union's list or a type's object."""
    while True:
        if isinstance(schema, str) and schema not in _PRIMITIVES:
            schema = avro.types[schema]
        if isinstance(schema, dict) and (
            not isinstance(schema["type"], str) or schema["type"] not in _COMPLEX
        ):
            schema = schema["type"]
            continue
        return schema


def _kind(schema: Any) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _simple_name(schema: dict[str, Any]) -> str:
    return str(schema.get("name")).rpartition(".")[2]
