"""What a schema is, and those of bytes, text and numbers.

Numbers are big-endian, as in all Pulsar clients. A payload of another length is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from nextgen.client.st.errors import SchemaMismatch
from protos.pulsar import PulsarApi_pb2 as pulsar

Value = TypeVar("Value")


class Schema(Generic[Value]):
    """Two functions, and what the server keeps of them.

    ``name`` and ``definition`` are sent with ``kind``, a value of Pulsar's ``Schema.Type``; without
    a kind nothing is sent, and the server does not check anything. The functions may raise anything
    for a value or a payload that does not fit; callers get ``SchemaMismatch``.

    ``reader_of`` is for kinds whose payloads cannot be read without the definition that they were
    written with: it returns the function that decodes payloads of another definition.
    """

    def __init__(
        self,
        encode: Callable[[Value], bytes],
        decode: Callable[[bytes], Value],
        *,
        kind: int | None = None,
        name: str = "",
        definition: bytes = b"",
        reader_of: Callable[[bytes], Callable[[bytes], Value]] | None = None,
    ) -> None:
        self._encode = encode
        self._decode = decode
        self._reader_of = reader_of
        self.kind = kind
        self.name = name
        self.definition = definition

    def encode(self, value: Value) -> bytes:
        """Return the payload of ``value``.

        Raises:
            SchemaMismatch: It does not fit the schema.
        """
        try:
            payload = self._encode(value)
        except Exception as error:
            raise SchemaMismatch(
                f"a {type(value).__name__} does not fit the schema: {error}"
            ) from (error)
        if not isinstance(payload, bytes):
            raise SchemaMismatch(f"the schema encodes into {type(payload).__name__}, not bytes")
        return payload

    def decode(self, payload: bytes) -> Value:
        """Return the value in ``payload``.

        Raises:
            SchemaMismatch: It does not fit the schema.
        """
        try:
            return self._decode(payload)
        except Exception as error:
            raise SchemaMismatch(
                f"a payload of {len(payload)} bytes does not fit the schema: {error}"
            ) from error

    @property
    def needs_versions(self) -> bool:
        """Whether a payload is read by the version of the schema that it was written with."""
        return self._reader_of is not None

    def written_as(self, kind: int, definition: bytes) -> Schema[Value]:
        """Return this schema for payloads that were written with another version of it.

        If it can read none of them, each ``decode`` raises ``SchemaMismatch`` with the reason.
        """
        if self._reader_of is None or (kind, definition) == (self.kind, self.definition):
            return self
        if kind != self.kind:
            return unreadable(f"it was written with a schema of kind {kind}, not {self.kind}")
        try:
            decode = self._reader_of(definition)
        except Exception as error:
            return unreadable(f"the schema that it was written with cannot be used: {error}")
        return Schema(self._encode, decode, kind=kind, name=self.name, definition=definition)

    def as_message(self) -> pulsar.Schema | None:
        """Return the schema for PRODUCER and SUBSCRIBE, None for a schema of bytes."""
        if self.kind is None:
            return None
        return pulsar.Schema(
            name=self.name, schema_data=self.definition, type=pulsar.Schema.Type.Name(self.kind)
        )


def unreadable(reason: str) -> Schema[Any]:
    """Return a schema that reads and writes nothing, for ``reason``."""

    def refuse(_: Any) -> Any:
        raise ValueError(reason)

    return Schema(refuse, refuse)


def _as_bytes(value: bytes | bytearray | memoryview) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes are expected")
    return bytes(value)


def _as_text(value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError("a string is expected")
    return value.encode()


def _number(layout: str, kind: int, name: str, types: type | tuple[type, ...]) -> Schema[Any]:
    packed = struct.Struct(layout)

    def encode(value: Any) -> bytes:
        if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
            raise TypeError(f"{value!r} is no {name}")
        return packed.pack(value)

    def decode(payload: bytes) -> Any:
        return packed.unpack(payload)[0]

    return Schema(encode, decode, kind=kind, name=name)


bytes_: Schema[bytes] = Schema(_as_bytes, bytes)
string: Schema[str] = Schema(_as_text, bytes.decode, kind=pulsar.Schema.String, name="String")
boolean: Schema[bool] = _number(">?", pulsar.Schema.Bool, "Boolean", bool)
int8: Schema[int] = _number(">b", pulsar.Schema.Int8, "INT8", int)
int16: Schema[int] = _number(">h", pulsar.Schema.Int16, "INT16", int)
int32: Schema[int] = _number(">i", pulsar.Schema.Int32, "INT32", int)
int64: Schema[int] = _number(">q", pulsar.Schema.Int64, "INT64", int)
float32: Schema[float] = _number(">f", pulsar.Schema.Float, "Float", (int, float))
float64: Schema[float] = _number(">d", pulsar.Schema.Double, "Double", (int, float))


def custom(encode: Callable[[Value], bytes], decode: Callable[[bytes], Value]) -> Schema[Value]:
    """Return a schema of two functions. The server does not know it and checks nothing."""
    return Schema(encode, decode)
