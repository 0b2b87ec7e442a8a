"""Decides whether data that was written with one schema can be read with another one.

It applies these of Avro's resolution rules (Avro 1.11, "Schema Resolution"): record fields match by
name, a field that only the reader has needs a default, numbers may be widened, a union is read
branch by branch. As in Pulsar, records may have different names. Aliases are not followed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from brokers.domain.schemas.schema import STRUCTURES, Schema, SchemaKind
from nextgen.kernel.input.short_text import shortened
from nextgen.kernel.limits.pulsar import (
    SCHEMA_BYTES_PER_STEP,
    SCHEMA_CHECK_STEPS_MAX,
    SCHEMA_COMPARISONS_MAX,
)

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
_NAME_CHARACTERS_SHOWN_MAX = 80
_FIELDS_PER_STEP = 16
"""Fields or symbols whose look-up takes as long as one step of a comparison."""


class InvalidSchema(ValueError):
    """The data is not a schema of its kind. The message is one sentence."""


def check_schema(schema: Schema, budget: ComparisonBudget | None = None) -> None:
    """Check that the data is a schema of its kind. ``budget`` keeps its parsed form.

    Raises:
        InvalidSchema: It is not.
    """
    if schema.kind in STRUCTURES:
        (budget or ComparisonBudget(schema)).parsed(schema)


class ComparisonBudget:
    """The budget for comparing one new schema with all versions of a topic, one after the other.

    The new schema is parsed once, and so is a version that is compared both ways. Parsing the
    versions is charged by their bytes.
    """

    def __init__(self, newcomer: Schema) -> None:
        self._newcomer = newcomer
        self._newcomer_parsed: _Avro | None = None
        self._version: Schema | None = None
        self._version_parsed: _Avro | None = None
        self.steps_left = SCHEMA_CHECK_STEPS_MAX

    def parse_ahead(self, version: Schema) -> Iterator[None]:
        """Parse what a comparison with ``version`` needs; yield after each of the two.

        What cannot be parsed is left for the comparison to report.
        """
        newcomer = self._newcomer
        if newcomer.kind == version.kind in STRUCTURES and newcomer.data != version.data:
            for schema in (newcomer, version):
                with suppress(InvalidSchema):
                    self.parsed(schema)
                yield

    def parsed(self, schema: Schema) -> _Avro:
        """Return the parsed form of the new schema or of a version.

        Raises:
            InvalidSchema: It cannot be parsed.
        """
        if schema is self._newcomer:
            if self._newcomer_parsed is None:
                self._newcomer_parsed = _Avro(schema.data)
            return self._newcomer_parsed
        if self._version_parsed is None or schema is not self._version:
            self.steps_left -= len(schema.data) // SCHEMA_BYTES_PER_STEP
            self._version, self._version_parsed = schema, _Avro(schema.data)
        return self._version_parsed


def reading_obstacle(
    reader: Schema, writer: Schema, budget: ComparisonBudget | None = None
) -> str | None:
    """Return why data of ``writer`` cannot be read with ``reader``, None if it can.

    ``budget`` is that of the schema that is compared with others too.
    """
    if reader.kind != writer.kind:
        return f"schema type {reader.kind} is not compatible with type {writer.kind}"
    if reader.data == writer.data:
        return None
    if reader.kind in STRUCTURES:
        budget = budget or ComparisonBudget(reader)
        try:
            return _Resolution(reader, writer, budget).obstacle()
        except InvalidSchema as error:
            return str(error)
    if reader.kind in (SchemaKind.KEY_VALUE, SchemaKind.PROTOBUF_NATIVE):
        return "schemas of this type must be equal"
    return None


class _TooManyComparisons(Exception):
    """The comparison exceeds its budget, and would block the event loop."""


class _Avro:
    """A parsed Avro schema: its root, and its named types, in memory linear in its data.

    Types are indexed by namespace and name separately: every inner type inherits the namespace, and
    full names would repeat it each time.
    """

    def __init__(self, data: bytes) -> None:
        self.types: dict[tuple[str, str], dict[str, Any]] = {}
        self.fields: dict[int, dict[str, dict[str, Any]]] = {}
        """By the id of a record, its fields by name."""
        self.symbols: dict[int, frozenset[str]] = {}
        """By the id of an enum, its symbols."""
        try:
            self.root = json.loads(data)
            self._collect(self.root, "")
        except (ValueError, RecursionError) as error:
            raise InvalidSchema(f"schema data is no Avro schema: {error}") from error

    def type_named(self, name: str) -> dict[str, Any] | None:
        """Return a type by any of its names."""
        namespace, _, simple = name.rpartition(".")
        return self.types.get((namespace, simple))

    def _collect(self, schema: Any, namespace: str) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._collect(branch, namespace)
        elif isinstance(schema, dict):
            self._collect_object(schema, namespace)
        elif not isinstance(schema, str):
            raise InvalidSchema(f"schema data has {schema!r} in the place of a type")
        elif schema not in _PRIMITIVES and self.type_named(schema) is None:
            raise InvalidSchema(f"schema data speaks of the unknown type {_shown(schema)!r}")

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
        prefix, _, simple = name.rpartition(".")
        stated = schema.get("namespace", prefix or namespace)
        if not isinstance(stated, str):
            raise InvalidSchema(
                f"schema data has {_shown(name)!r} with a namespace that is no text"
            )
        for known_in in (prefix, "", stated):
            self.types[known_in, simple] = schema
        if kind == "enum":
            symbols = schema.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
                raise InvalidSchema(f"schema data has enum {_shown(name)!r} without symbols")
            self.symbols[id(schema)] = frozenset(symbols)
        elif kind in ("record", "error"):
            fields = _fields_of(schema)
            self.fields[id(schema)] = {field["name"]: field for field in fields}
            for field in fields:
                self._collect(field["type"], stated)


def _fields_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    name = _shown(record["name"])
    fields = record.get("fields")
    if not isinstance(fields, list):
        raise InvalidSchema(f"schema data has record {name!r} without fields")
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str):
            raise InvalidSchema(f"schema data has a field of {name!r} without name")
        if "type" not in field:
            raise InvalidSchema(f"schema data has a field of {name!r} without type")
    return fields


class _Where(NamedTuple):
    """A place in a schema. It is formatted only for a message."""

    text: str
    name: str = ""
    outside: _Where | None = None

    def __str__(self) -> str:
        place, texts = self, []
        while True:
            texts.append(place.text.format(_shown(place.name)))
            if place.outside is None:
                return " of ".join(texts)
            place = place.outside


class _Obstacle(NamedTuple):
    """Why one schema cannot be read with another. It is formatted only for a message.

    A union tries its branches, and the obstacles of those that do not match are discarded.
    """

    where: _Where
    text: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.where} {self.text.format(*map(_shown, self.names))}"


class _Resolution:
    """Compares two schemas side by side, in a bounded number of steps.

    The results of compared pairs of records or enums are remembered. A pair counts as readable
    while it is being compared, because records may contain themselves.
    """

    def __init__(self, reader: Schema, writer: Schema, budget: ComparisonBudget) -> None:
        self._budget = budget
        self._reader = budget.parsed(reader)
        self._writer = budget.parsed(writer)
        self._known: dict[tuple[int, int], _Obstacle | None] = {}
        self._readable: list[tuple[int, int]] = []
        self._steps_left = SCHEMA_COMPARISONS_MAX

    def obstacle(self) -> str | None:
        try:
            found = self._between(self._reader.root, self._writer.root, _Where("the schema"))
        except RecursionError:
            return "the schemas are nested too deeply"
        except _TooManyComparisons:
            if self._budget.steps_left < 0:
                return "comparing the schema with all versions of the topic takes too long"
            return "the schemas are too large to be compared"
        return None if found is None else str(found)

    def _spend(self, steps: int) -> None:
        self._steps_left -= steps
        self._budget.steps_left -= steps
        if self._steps_left < 0 or self._budget.steps_left < 0:
            raise _TooManyComparisons

    def _between(self, reader: Any, writer: Any, where: _Where) -> _Obstacle | None:
        self._spend(1)
        reader, writer = self._resolved(reader, self._reader), self._resolved(writer, self._writer)
        if isinstance(writer, list):
            found = (self._between(reader, branch, where) for branch in writer)
            return next((problem for problem in found if problem is not None), None)
        if isinstance(reader, list):
            if any(self._between(branch, writer, where) is None for branch in reader):
                return None
            return _Obstacle(where, "has no branch for {}", (_kind(writer),))
        reader_kind, writer_kind = _kind(reader), _kind(writer)
        if reader_kind != writer_kind:
            if reader_kind in _WIDER.get(writer_kind, ()):
                return None
            kinds = (reader_kind, writer_kind)
            return _Obstacle(where, "is {} on one side and {} on the other", kinds)
        return self._of_one_kind(reader, writer, reader_kind, where)

    def _of_one_kind(self, reader: Any, writer: Any, kind: str, where: _Where) -> _Obstacle | None:
        if kind == "array":
            inside = _Where("an item", outside=where)
            return self._between(reader["items"], writer["items"], inside)
        if kind == "map":
            inside = _Where("a value", outside=where)
            return self._between(reader["values"], writer["values"], inside)
        if kind not in _NAMED:
            return None
        # Names do not matter: a renamed class writes the same bytes.
        is_record = kind in ("record", "error")
        names = (_simple_name(reader), _simple_name(writer))
        if not is_record and names[0] != names[1]:
            return _Obstacle(where, "is {} and {}", names)
        if kind == "fixed":
            if reader.get("size") != writer.get("size"):
                return _Obstacle(where, "has two sizes")
            return None
        return self._of_named(
            reader, writer, where, self._of_records if is_record else self._of_enums
        )

    def _of_named(
        self,
        reader: Any,
        writer: Any,
        where: _Where,
        compare: Callable[[Any, Any, _Where], _Obstacle | None],
    ) -> _Obstacle | None:
        pair = (id(reader), id(writer))
        if pair in self._known:
            return self._known[pair]
        began = len(self._readable)
        self._known[pair] = None
        self._readable.append(pair)
        obstacle = compare(reader, writer, where)
        if obstacle is not None:
            # Results found meanwhile may depend on this pair being readable: forget them.
            for each in self._readable[began:]:
                del self._known[each]
            del self._readable[began:]
            self._known[pair] = obstacle
        return obstacle

    def _of_enums(self, reader: Any, writer: Any, where: _Where) -> _Obstacle | None:
        written = self._writer.symbols[id(writer)]
        self._spend(len(written) // _FIELDS_PER_STEP)
        missing = written - self._reader.symbols[id(reader)]
        if missing and "default" not in reader:
            return _Obstacle(where, "lacks the symbol {}", (min(missing),))
        return None

    def _of_records(self, reader: Any, writer: Any, where: _Where) -> _Obstacle | None:
        read, written = self._reader.fields[id(reader)], self._writer.fields[id(writer)]
        self._spend(len(read) // _FIELDS_PER_STEP)
        for name, field in read.items():
            if name in written:
                inside = _Where("field {}", name, where)
                problem = self._between(field["type"], written[name]["type"], inside)
                if problem is not None:
                    return problem
            elif "default" not in field:
                inside = _Where("field {}", name, where)
                return _Obstacle(inside, "is on one side only and has no default")
        return None

    def _resolved(self, schema: Any, avro: _Avro) -> Any:
        """Resolve names and wrappings to a primitive's name, a union's list or a type's object."""
        while True:
            if isinstance(schema, str) and schema not in _PRIMITIVES:
                schema = avro.type_named(schema)
            if isinstance(schema, dict) and (
                not isinstance(schema["type"], str) or schema["type"] not in _COMPLEX
            ):
                self._spend(1)
                schema = schema["type"]
                continue
            return schema


def _kind(schema: Any) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _simple_name(schema: dict[str, Any]) -> str:
    return str(schema.get("name")).rpartition(".")[2]


def _shown(name: str) -> str:
    return shortened(name, _NAME_CHARACTERS_SHOWN_MAX)
