import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.schemas.compatibility import (
    ComparisonBudget,
    InvalidSchema,
    check_schema,
    reading_obstacle,
)
from brokers.domain.schemas.schema import Schema, SchemaKind
from brokers.domain.schemas.strategies import version_obstacles
from nextgen.kernel.governance.policies import SchemaCompatibility

STRING = 1


def record(*fields: object, name: str = "Order", kind: int = SchemaKind.AVRO) -> Schema:
    content = {"type": "record", "name": name, "fields": list(fields)}
    return Schema("orders", kind, json.dumps(content).encode())


def obstacle(new: Schema, latest: Schema) -> str | None:
    problems = version_obstacles(new, latest, SchemaCompatibility.FULL, ComparisonBudget(new))
    return next((problem for problem in problems if problem is not None), None)


def field(name: str, kind: object, **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


def record_of(name: str) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [ID]}


ID = field("id", "long")
NOTE = field("note", ["null", "string"], default=None)


@pytest.mark.parametrize(
    ("new", "latest"),
    [
        (record(ID), record(ID)),
        (record(ID, name="Invoice"), record(ID)),
        (record(field("a", record_of("Inner"))), record(field("a", record_of("Other")))),
        (record(ID, NOTE), record(ID)),
        (record(ID), record(ID, NOTE)),
        (record(field("id", {"type": "long"})), record(ID)),
        (record(field("a", "string")), record(field("a", "bytes"))),
        (
            record(field("all", {"type": "array", "items": "int"})),
            record(field("all", {"type": "array", "items": "int"}, doc="other")),
        ),
        (record(ID, kind=SchemaKind.JSON), record(ID, NOTE, kind=SchemaKind.JSON)),
        (Schema("a", STRING, b""), Schema("b", STRING, b"null")),
    ],
)
def test_schemas_that_can_read_each_other_may_follow_each_other(new: Schema, latest: Schema):
    assert obstacle(new, latest) is None
    assert obstacle(latest, new) is None


@pytest.mark.parametrize(
    ("new", "latest"),
    [
        (record(ID, field("note", "string")), record(ID)),
        (record(ID), record(ID, field("note", "string"))),
        (record(field("id", "int")), record(field("id", "long"))),
        (record(field("id", "string")), record(ID)),
        (record(ID), record(ID, kind=SchemaKind.JSON)),
        (record(ID), Schema("orders", STRING, b"")),
        (record(field("a", ["null", "string"])), record(field("a", "string"))),
        (
            record(field("a", {"type": "map", "values": "int"})),
            record(field("a", {"type": "map", "values": "string"})),
        ),
        (
            record(field("a", {"type": "enum", "name": "E", "symbols": ["X", "Y"]})),
            record(field("a", {"type": "enum", "name": "E", "symbols": ["X"]})),
        ),
        (
            record(field("a", {"type": "fixed", "name": "F", "size": 4})),
            record(field("a", {"type": "fixed", "name": "F", "size": 8})),
        ),
        (Schema("k", SchemaKind.KEY_VALUE, b"1"), Schema("k", SchemaKind.KEY_VALUE, b"2")),
    ],
)
def test_schemas_that_cannot_read_each_other_may_not(new: Schema, latest: Schema):
    assert obstacle(new, latest) is not None
    assert obstacle(latest, new) is not None


def test_a_consumer_needs_to_read_in_one_direction_only():
    written = record(ID, field("note", "string"))

    assert reading_obstacle(record(ID), written) is None
    assert reading_obstacle(record(field("id", "double")), written) is None
    assert reading_obstacle(written, record(ID)) == (
        "field note of the schema is on one side only and has no default"
    )
    assert reading_obstacle(record(field("id", ["null", "long"])), written) is None


def test_records_may_contain_themselves():
    tree = record(field("left", ["null", "Order"], default=None), ID)
    more = record(field("left", ["null", "Order"], default=None), ID, NOTE)

    assert obstacle(more, tree) is None
    assert obstacle(record(field("left", ["null", "Order"], default=None)), tree) is not None


def test_types_may_be_called_by_their_full_name():
    inner = {"type": "record", "name": "Inner", "namespace": "a.b", "fields": [ID]}
    schema = record(field("x", inner), field("y", "a.b.Inner"))

    assert obstacle(schema, record(field("x", inner), field("y", "a.b.Inner", doc="z"))) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"17",
        b"\xff",
        b'"unknown"',
        b'{"type": "record"}',
        b'{"type": "record", "name": "A"}',
        b'{"type": "record", "name": "A", "fields": [1]}',
        b'{"type": "array"}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_schema_is_refused(data: bytes):
    with pytest.raises(InvalidSchema):
        check_schema(Schema("a", SchemaKind.AVRO, data))
    assert reading_obstacle(Schema("a", SchemaKind.AVRO, data), record(ID)) is not None


def test_a_type_may_be_named_like_a_kind_of_type():
    odd = record(ID, name="record")

    assert obstacle(odd, record(ID, NOTE, name="record")) is None
    assert obstacle(record(field("a", "record"), name="record"), odd) is not None


_WORDS = st.sampled_from(
    [
        *("type", "record", "enum", "array", "map", "union", "int", "string", "A", "fields"),
        *("items", "name", "namespace", "symbols", "values", "default", "size", "fixed", "null"),
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=5),
    max_leaves=20,
)


@given(_JSON, _JSON)
def test_whatever_is_sent_as_a_schema_is_refused_or_compared(one: object, other: object):
    schemas = [Schema("a", SchemaKind.AVRO, json.dumps(data).encode()) for data in (one, other)]

    assert obstacle(*schemas) is None or obstacle(*schemas)


def test_data_of_other_kinds_is_not_looked_at():
    check_schema(Schema("a", STRING, b"null"))
    check_schema(Schema("a", SchemaKind.PROTOBUF_NATIVE, b"\xff"))


def test_a_schema_that_is_nested_without_end_is_told_apart_or_refused():
    deep = '{"type": "array", "items": ' * 400 + '"int"' + "}" * 400
    other = '{"type": "array", "items": ' * 400 + '"string"' + "}" * 400

    assert obstacle(
        Schema("a", SchemaKind.AVRO, deep.encode()), Schema("a", SchemaKind.AVRO, other.encode())
    )


def test_unions_that_cannot_be_compared_in_time_are_distinguished():
    branches = 20_000
    reader = json.dumps(["int"] * branches + ["string"]).encode()
    writer = json.dumps(["string"] * branches).encode()

    problem = reading_obstacle(
        Schema("a", SchemaKind.AVRO, reader), Schema("a", SchemaKind.AVRO, writer)
    )

    assert problem == "the schemas are too large to be compared"
