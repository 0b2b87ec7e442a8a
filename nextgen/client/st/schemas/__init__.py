"""Schemas: how values become the bytes of messages, and back.

``bytes_``, ``string``, the primitives, ``json``, ``avro`` and ``custom``. Producers and consumers
take one.
"""

from __future__ import annotations

from nextgen.client.st.schemas.avro_schema import avro
from nextgen.client.st.schemas.json_schema import json
from nextgen.client.st.schemas.schema import (
    Schema,
    boolean,
    bytes_,
    custom,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
)

__all__ = [
    "Schema",
    "avro",
    "boolean",
    "bytes_",
    "custom",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "json",
    "string",
]
