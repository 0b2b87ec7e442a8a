"""Values as JSON: dataclasses and models of pydantic.

The server gets an Avro record that describes the fields, as from Java's and Python's stock clients,
so that it can check compatibility.
"""

from __future__ import annotations

import json as json_library
from dataclasses import is_dataclass
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter

from nextgen.client.st.errors import InvalidSettings
from nextgen.client.st.schemas.avro_types import record_of
from nextgen.client.st.schemas.schema import Schema
from protos.pulsar import PulsarApi_pb2 as pulsar

Value = TypeVar("Value")


def json(kind: type[Value]) -> Schema[Value]:
    """Return the schema of a dataclass or a pydantic model as JSON.

    Raises:
        InvalidSettings: ``kind`` is neither, or a field has a type that Avro has not.
    """
    is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
    if not is_model and not is_dataclass(kind):
        raise InvalidSettings(f"{kind!r} is neither a dataclass nor a pydantic model")
    record = record_of(kind)
    adapter: TypeAdapter[Value] = TypeAdapter(kind)

    def encode(value: Value) -> bytes:
        if not isinstance(value, kind):
            raise TypeError(f"a {kind.__name__} is expected")
        return adapter.dump_json(value)

    definition = json_library.dumps(record, separators=(",", ":")).encode()
    return Schema(
        encode,
        adapter.validate_json,
        kind=pulsar.Schema.Json,
        name=kind.__name__,
        definition=definition,
    )
