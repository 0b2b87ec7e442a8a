"""Schemas as Pulsar's Admin REST writes them: the names of types, and data as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from protos.pulsar.PulsarApi_pb2 import Schema

_LENGTH_BYTES = 4
"""Before each half of a KEY_VALUE schema's data: its length, big-endian, signed."""


_JAVA_NAMES: Mapping[str, str] = MappingProxyType({"NoSchema": "NONE", "Bool": "BOOLEAN"})
"""Kinds of schemas whose name in Java differs from the protocol's."""


def _java_name(name: str) -> str:
    if name in _JAVA_NAMES:
        return _JAVA_NAMES[name]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


TYPE_NAMES: Mapping[int, str] = MappingProxyType(
    {number: _java_name(name) for name, number in Schema.Type.items()}
)
"""Names in Java's ``SchemaType`` by number."""

_KEY_VALUE = Schema.KeyValue


def schema_content(
    version: int, kind: int, data: bytes, properties: Mapping[str, str]
) -> Mapping[str, Any]:
    """Return one version. The time of its creation is not kept."""
    return {
        "version": version,
        "type": TYPE_NAMES.get(kind, str(kind)),
        "timestamp": 0,
        "data": _data_text(kind, data),
        "properties": dict(properties),
    }


def schema_data(kind: int, text: str) -> bytes:
    """Return the data of a schema that was sent as text.

    Raises:
        ValueError: It is no text of a schema of this kind.
    """
    if kind != _KEY_VALUE:
        return text.encode()
    try:
        halves = json.loads(text)
        parts = [_half_data(halves[name]) for name in ("key", "value")]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("a KEY_VALUE schema is an object with a key and a value") from error
    return b"".join(len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in parts)


def _half_data(half: Any) -> bytes:
    # A primitive type has no data; the properties say which one it is.
    if half == "":
        return b""
    return json.dumps(half, separators=(",", ":"), ensure_ascii=False).encode()


def _data_text(kind: int, data: bytes) -> str:
    if kind == _KEY_VALUE:
        try:
            key, rest = _first_half(data)
            value, rest = _first_half(rest)
            halves = {"key": _half_json(key), "value": _half_json(value)}
            return json.dumps(halves, separators=(",", ":"), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass  # A client stored something else: shown as it is.
    return data.decode("utf-8", "replace")


def _first_half(data: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(data[:_LENGTH_BYTES], "big", signed=True)
    end = _LENGTH_BYTES + max(0, length)
    if len(data) < end:
        raise ValueError("it ends in the middle of a half")
    return data[_LENGTH_BYTES:end], data[end:]


def _half_json(half: bytes) -> Any:
    return json.loads(half) if half else ""
