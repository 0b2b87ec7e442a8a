"""Values as Avro: dataclasses, models of pydantic, or what an Avro definition describes.

fastavro reads and writes them (ADR 0120). It is imported when the first such schema is made.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar, overload

from pydantic import BaseModel, TypeAdapter

from nextgen.client.st.errors import InvalidSettings, NotSupported
from nextgen.client.st.schemas.avro_types import record_of
from nextgen.client.st.schemas.schema import Schema
from nextgen.kernel.input.json_fields import parse_json
from nextgen.kernel.limits.scalable import ST_AVRO_DEPTH_MAX
from protos.pulsar import PulsarApi_pb2 as pulsar

Value = TypeVar("Value")
Definition = str | bytes | Mapping[str, Any]

_RECORDS = ("record", "error")


@overload
def avro(kind: type[Value], *, definition: Definition | None = None) -> Schema[Value]: ...


@overload
def avro(kind: None = None, *, definition: Definition) -> Schema[Any]: ...


def avro(kind: type[Any] | None = None, *, definition: Definition | None = None) -> Schema[Any]:
    """Return an Avro schema.

    Its definition is made from ``kind``, a dataclass or a pydantic model, unless ``definition`` has
    one as JSON. Without ``kind`` values are what fastavro makes of them: a record is a dictionary.

    A payload is read by the version of the schema that its message names. Fields that this schema
    does not have are left out, and those that the payload does not have get their defaults.

    Raises:
        NotSupported: fastavro is not installed.
        InvalidSettings: ``kind`` is neither, or the definition is none that can be used.
    """
    if kind is None and definition is None:
        raise InvalidSettings("an Avro schema needs a class or a definition")
    if kind is not None and not is_dataclass(kind) and not _is_model(kind):
        raise InvalidSettings(f"{kind!r} is neither a dataclass nor a pydantic model")
    if definition is None:
        assert kind is not None
        definition = record_of(kind)
    if isinstance(definition, Mapping):
        definition = json.dumps(definition, separators=(",", ":"))
    text = definition.encode() if isinstance(definition, str) else definition
    try:
        codec = _Codec(text)
    except ValueError as error:
        raise InvalidSettings(f"the definition cannot be used: {error}") from error
    to_plain, from_plain = _conversion(kind)
    return Schema(
        lambda value: codec.encode(to_plain(value)),
        lambda payload: from_plain(codec.decode(payload)),
        kind=pulsar.Schema.Avro,
        name=codec.name,
        definition=text,
        reader_of=lambda written: _reader(codec, _Codec(written), from_plain),
    )


class _Codec:
    """One parsed definition.

    Raises:
        ValueError: It is none, or one by which a payload could exhaust stack or memory.
    """

    def __init__(self, definition: bytes) -> None:
        document = parse_json(definition)
        check_definition(document)
        self._avro = _fastavro()
        try:
            self.parsed = self._avro.parse_schema(document)
        except (self._avro.schema.SchemaParseException, self._avro.schema.UnknownType) as error:
            raise ValueError(str(error) or type(error).__name__) from error
        is_named = isinstance(self.parsed, dict) and "name" in self.parsed
        self.name: str = self.parsed["name"] if is_named else ""

    def encode(self, plain: Any) -> bytes:
        stream = io.BytesIO()
        self._avro.schemaless_writer(stream, self.parsed, plain)
        return stream.getvalue()

    def decode(self, payload: bytes, reader: Any = None) -> Any:
        stream = io.BytesIO(payload)
        value = self._avro.schemaless_reader(stream, self.parsed, reader)
        if stream.tell() != len(payload):
            raise ValueError(f"{len(payload) - stream.tell()} bytes follow the value")
        return value


def _reader(
    own: _Codec, written: _Codec, from_plain: Callable[[Any], Value]
) -> Callable[[bytes], Value]:
    """Return the function that reads payloads of ``written`` as values of ``own``."""
    target = own.parsed
    if written.name and own.name and isinstance(target, dict):
        # As in Pulsar, versions of a record may have different names.
        target = {**target, "aliases": [*target.get("aliases", ()), written.name]}

    def read(payload: bytes) -> Value:
        # What the reader does not have is skipped without looking for the payload's end, so a
        # forged length would keep the reader busy for ever. Reading everything finds it.
        written.decode(payload)
        return from_plain(written.decode(payload, target))

    return read


def check_definition(document: Any) -> None:
    """Check that payloads of a definition are read in bounded stack and memory.

    Raises:
        ValueError: A record has itself inside, types are nested too deep, or items of an array
        need no bytes, so that a few bytes stand for any number of them.
    """
    _Checked().width_of(document, (), 0)


class _Checked:
    """Looks at each type once. A width is whether a value takes at least one byte."""

    def __init__(self) -> None:
        self._widths: dict[str, bool] = {}

    def width_of(self, node: Any, inside: tuple[str, ...], depth: int) -> bool:
        if depth > ST_AVRO_DEPTH_MAX:
            raise ValueError(f"types are nested more than {ST_AVRO_DEPTH_MAX} deep")
        if isinstance(node, str):
            return self._named(node, inside)
        if isinstance(node, list):
            for each in node:
                self.width_of(each, inside, depth + 1)
            return True
        if not isinstance(node, dict):
            raise ValueError(f"{node!r} is no type")
        return self._complex(node, inside, depth)

    def _named(self, name: str, inside: tuple[str, ...]) -> bool:
        if name == "null":
            return False
        short = _short(name)
        if short in inside:
            raise ValueError(f"record {short} has itself inside, which is not supported")
        return self._widths.get(short, True)

    def _complex(self, node: dict[str, Any], inside: tuple[str, ...], depth: int) -> bool:
        kind = node.get("type")
        if kind in _RECORDS:
            name, fields = _short(node.get("name")), node.get("fields")
            if not isinstance(fields, list):
                raise ValueError(f"record {name} has no list of fields")
            types = [each.get("type") for each in fields if isinstance(each, dict)]
            widths = [self.width_of(each, (*inside, name), depth + 1) for each in types]
            self._widths[name] = any(widths)
            return any(widths)
        if kind == "array":
            if not self.width_of(node.get("items"), inside, depth + 1):
                raise ValueError("items of an array take no bytes")
            return True
        if kind == "map":
            self.width_of(node.get("values"), inside, depth + 1)
            return True
        if kind == "fixed":
            self._widths[_short(node.get("name"))] = node.get("size") != 0
            return node.get("size") != 0
        if kind == "enum":
            return True
        return self.width_of(kind, inside, depth + 1)


def _short(name: Any) -> str:
    return str(name).rpartition(".")[2]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _conversion(kind: type[Any] | None) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return how values become dictionaries, and back."""
    if kind is None:
        return _itself, _itself
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def to_plain(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"a {kind.__name__} is expected")
        return adapter.dump_python(value, warnings=False)

    return to_plain, adapter.validate_python


def _itself(value: Any) -> Any:
    return value


def _fastavro() -> Any:
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise NotSupported(
            "Avro schemas need fastavro: pip install 'pulsar-nextgen[st]'"
        ) from error
    return fastavro
