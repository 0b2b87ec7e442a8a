"""Avro schemas: what they write, what they read of other versions, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from nextgen.client.st.errors import InvalidSettings, SchemaMismatch
from nextgen.client.st.schemas import Schema, avro
from nextgen.kernel.limits.scalable import ST_AVRO_DEPTH_MAX
from protos.pulsar import PulsarApi_pb2 as pulsar

AVRO = pulsar.Schema.Avro


@dataclass
class Line:
    article: str
    pieces: int = 1


@dataclass
class Order:
    number: int
    note: str | None = None
    lines: list[Line] = field(default_factory=list)
    prices: dict[str, float] = field(default_factory=dict)


class Model(BaseModel):
    number: int
    paid: bool = False
    image: bytes = b""


ORDER = Order(3, "ä", [Line("a"), Line("b", 2)], {"a": 1.5})


def definition(*fields: tuple[str, Any], name: str = "Order") -> str:
    return json.dumps(
        {
            "type": "record",
            "name": name,
            "fields": [{"name": key, "type": kind} for key, kind in fields],
        }
    )


def read_as(reader: Schema[Any], writer: Schema[Any], payload: bytes) -> Any:
    return reader.written_as(AVRO, writer.definition).decode(payload)


def test_classes_are_written_as_avros_specification_says() -> None:
    orders, models = avro(Order), avro(Model)

    # A long as a zigzag varint, the branch of a union, a string behind its length, blocks.
    assert orders.encode(Order(3, "ä")) == b"\x06\x02\x04\xc3\xa4\x00\x00"
    assert orders.decode(orders.encode(ORDER)) == ORDER
    assert models.decode(models.encode(Model(number=-1, image=b"x"))) == Model(
        number=-1, image=b"x"
    )
    message = orders.as_message()
    assert message is not None
    assert (message.type, message.name) == (AVRO, "Order")
    assert json.loads(message.schema_data)["fields"][0] == {"name": "number", "type": "long"}


def test_a_definition_has_dictionaries_or_a_class_for_it() -> None:
    text = definition(("number", "int"), name="a.b.Given")
    plain = avro(definition=text)
    typed = avro(Line, definition=definition(("article", "string"), ("pieces", "int")))

    assert plain.decode(plain.encode({"number": 3})) == {"number": 3}
    assert plain.definition == text.encode()
    assert plain.name == "a.b.Given"
    assert typed.decode(typed.encode(Line("x", 2))) == Line("x", 2)


def test_payloads_of_other_versions_are_resolved_by_the_names_of_fields() -> None:
    older = avro(
        definition=definition(("number", "int"), ("gone", {"type": "map", "values": "long"}))
    )
    newer = avro(Order)
    payload = older.encode({"number": 7, "gone": {"a": 1}})

    assert read_as(newer, older, payload) == Order(7)
    assert read_as(older, older, payload) == {"number": 7, "gone": {"a": 1}}
    # Numbers are widened, and a record may have got another name.
    wider = avro(definition=definition(("number", "double"), name="Renamed"))
    assert read_as(wider, older, payload) == {"number": 7.0}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (definition(("number", "string")), {"number": "x"}),
        (definition(("other", "long")), {"other": 1}),
    ],
)
def test_incompatible_versions_are_a_clear_error(written: str, value: Any) -> None:
    writer = avro(definition=written)

    with pytest.raises(SchemaMismatch, match="does not fit the schema"):
        read_as(avro(Order), writer, writer.encode(value))


def test_a_version_that_is_no_avro_is_an_error_at_each_payload() -> None:
    orders = avro(Order)

    for kind, content in ((pulsar.Schema.Json, orders.definition), (AVRO, b"{"), (AVRO, b"\xff")):
        with pytest.raises(SchemaMismatch, match="written with"):
            orders.written_as(kind, content).decode(b"")
    assert orders.written_as(AVRO, orders.definition) is orders


@pytest.mark.parametrize("value", [None, {"number": 1}, Order("x"), Order(2**64)])  # type: ignore[arg-type]
def test_a_value_that_does_not_fit_is_an_error(value: Any) -> None:
    with pytest.raises(SchemaMismatch):
        avro(Order).encode(value)


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        (None, None, "class or a definition"),
        (dict, None, "neither a dataclass nor"),
        (None, "{", "cannot be used"),
        (None, '{"type": "record", "name": "A"}', "no list of fields"),
        (None, definition(("a", "unknown")), "unknown"),
        (None, definition(("next", ["null", "Order"])), "has itself inside"),
        (None, definition(("a", {"type": "array", "items": "null"})), "take no bytes"),
        (
            None,
            definition(
                ("a", {"type": "array", "items": json.loads(definition(("n", "null"), name="N"))})
            ),
            "take no bytes",
        ),
        (
            None,
            definition(
                ("a", {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}})
            ),
            "take no bytes",
        ),
    ],
)
def test_definitions_that_cannot_be_used_are_refused(kind: Any, given: Any, why: str) -> None:
    """Those that read without end, or on an unbounded stack, as well as those that are none."""
    with pytest.raises(InvalidSettings, match=why):
        avro(kind, definition=given)


def test_types_may_be_nested_ST_AVRO_DEPTH_MAX_deep() -> None:
    def nested(depth: int) -> Any:
        node: Any = "long"
        for _ in range(depth):
            node = {"type": "array", "items": node}
        return node

    avro(definition=json.dumps(nested(ST_AVRO_DEPTH_MAX)))
    for depth in (ST_AVRO_DEPTH_MAX + 1, 100_000):
        with pytest.raises(InvalidSettings, match="deep"):
            avro(definition='{"type":"array","items":' * depth + '"long"' + "}" * depth)


FORGED = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
"""A count of some 10^18."""


def test_a_forged_length_ends_with_the_payload_even_where_it_is_skipped() -> None:
    reader = avro(Order)
    for items in ("double", "boolean", "string", {"type": "fixed", "name": "F", "size": 3}):
        writer = avro(
            definition=definition(("gone", {"type": "array", "items": items}), ("number", "int"))
        )
        with pytest.raises(SchemaMismatch):
            read_as(reader, writer, FORGED + b"\x01" * 20)


EVERYTHING = avro(
    definition=definition(
        ("a", {"type": "array", "items": ["null", "double", "string"]}),
        ("b", {"type": "map", "values": {"type": "fixed", "name": "F", "size": 2}}),
        ("c", {"type": "enum", "name": "E", "symbols": ["x", "y"]}),
        ("number", "long"),
        ("e", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
        ("f", {"type": "int", "logicalType": "date"}),
    )
)
ORDERS = avro(Order)


@given(st.binary(max_size=60))
def test_any_payload_is_a_value_or_an_error(payload: bytes) -> None:
    for read in (
        ORDERS.decode,
        EVERYTHING.decode,
        ORDERS.written_as(AVRO, EVERYTHING.definition).decode,
    ):
        try:
            read(payload)
        except SchemaMismatch:
            continue
