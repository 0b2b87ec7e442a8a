"""Values into payloads and back."""

from __future__ import annotations

import json as json_library
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from nextgen.client.st.errors import InvalidSettings, SchemaMismatch
from nextgen.client.st.schemas import schema as schemas
from nextgen.client.st.schemas.json_schema import json
from nextgen.client.st.schemas.schema import Schema
from protos.pulsar import PulsarApi_pb2 as pulsar


@dataclass
class Address:
    street: str
    number: int = 1


@dataclass
class Person:
    name: str
    age: int
    tags: list[str] = field(default_factory=list)
    address: Address | None = None
    scores: dict[str, float] = field(default_factory=dict)


class Order(BaseModel):
    order_id: int
    note: str | None = None
    paid: bool = False


@pytest.mark.parametrize(
    ("schema", "value", "payload"),
    [
        (schemas.bytes_, b"\x00\xff", b"\x00\xff"),
        (schemas.string, "ä", b"\xc3\xa4"),
        (schemas.boolean, True, b"\x01"),
        (schemas.int8, -1, b"\xff"),
        (schemas.int16, 258, b"\x01\x02"),
        (schemas.int32, -2, b"\xff\xff\xff\xfe"),
        (schemas.int64, 1, b"\x00\x00\x00\x00\x00\x00\x00\x01"),
        (schemas.float32, 1.5, b"\x3f\xc0\x00\x00"),
        (schemas.float64, -2, b"\xc0\x00\x00\x00\x00\x00\x00\x00"),
    ],
)
def test_primitives_are_big_endian_and_come_back(
    schema: Schema[Any], value: Any, payload: bytes
) -> None:
    assert schema.encode(value) == payload
    assert schema.decode(payload) == value


@pytest.mark.parametrize(
    "schema",
    [schemas.boolean, schemas.int8, schemas.int16, schemas.int32, schemas.int64, schemas.float32],
)
def test_a_payload_of_another_length_is_an_error(schema: Schema[Any]) -> None:
    size = len(schema.encode(True if schema is schemas.boolean else 1))

    for wrong in (b"\x00" * (size - 1), b"\x00" * (size + 1)):
        with pytest.raises(SchemaMismatch, match=f"{len(wrong)} bytes"):
            schema.decode(wrong)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (schemas.int8, 128),
        (schemas.int32, True),
        (schemas.int64, 1.0),
        (schemas.float64, "1"),
        (schemas.string, b"x"),
        (schemas.bytes_, "x"),
        (schemas.boolean, 1),
        (json(Order), {"order_id": 1}),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(schema: Schema[Any], value: Any) -> None:
    with pytest.raises(SchemaMismatch):
        schema.encode(value)


def test_a_string_that_is_not_utf_8_is_an_error() -> None:
    with pytest.raises(SchemaMismatch):
        schemas.string.decode(b"\xff")


def test_dataclasses_and_models_are_json_with_an_avro_record() -> None:
    people, orders = json(Person), json(Order)
    person = Person("Ada", 36, ["a"], Address("x"), {"y": 1.5})

    assert people.decode(people.encode(person)) == person
    assert orders.decode(b'{"order_id": 3}') == Order(order_id=3)
    message = people.as_message()
    assert message is not None
    assert (message.type, message.name) == (pulsar.Schema.Json, "Person")
    assert json_library.loads(message.schema_data) == {
        "type": "record",
        "name": "Person",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "age", "type": "long"},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
            {
                "name": "address",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "Address",
                        "fields": [
                            {"name": "street", "type": "string"},
                            {"name": "number", "type": "long", "default": 1},
                        ],
                    },
                ],
                "default": None,
            },
            {"name": "scores", "type": {"type": "map", "values": "double"}, "default": {}},
        ],
    }


@pytest.mark.parametrize("payload", [b"", b"{", b'{"order_id": "x"}', b"[]", b"null"])
def test_json_that_does_not_fit_is_an_error(payload: bytes) -> None:
    with pytest.raises(SchemaMismatch):
        json(Order).decode(payload)


def test_what_is_no_record_has_no_json_schema() -> None:
    @dataclass
    class Odd:
        value: complex

    with pytest.raises(InvalidSettings):
        json(dict)
    with pytest.raises(InvalidSettings, match="value"):
        json(Odd)


def test_a_custom_schema_is_two_functions_and_sends_no_schema() -> None:
    schema = schemas.custom(lambda value: value[::-1].encode(), lambda data: data.decode()[::-1])

    assert schema.decode(schema.encode("abc")) == "abc"
    assert schema.as_message() is None
    with pytest.raises(SchemaMismatch):
        schema.encode(3)  # type: ignore[arg-type]
    with pytest.raises(SchemaMismatch, match="not bytes"):
        schemas.custom(lambda value: "text", bytes).encode(1)  # type: ignore[arg-type, return-value]


@given(st.binary(max_size=40))
def test_any_payload_is_a_value_or_an_error(payload: bytes) -> None:
    for schema in (schemas.string, schemas.int32, schemas.float64, json(Order), json(Person)):
        try:
            schema.decode(payload)
        except SchemaMismatch:
            continue


def test_json_of_another_version_is_read_by_the_names_of_its_fields() -> None:
    @dataclass
    class Person:
        name: str
        age: int
        nick: str = "none"

    older, newer = json(Address), json(Person)

    assert newer.decode(b'{"name": "Ada", "age": 36}') == Person("Ada", 36)
    assert older.decode(b'{"street": "x", "number": 2, "city": "y"}') == Address("x", 2)
    with pytest.raises(SchemaMismatch, match="number"):
        older.decode(b'{"street": "x", "number": "many"}')
