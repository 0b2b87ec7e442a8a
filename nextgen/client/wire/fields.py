"""One table of fields between a dataclass and a protobuf message, serving both directions.

    FieldMap(TopicDeleted, pb.TopicDeleted)
    FieldMap(ParentGateOpened, pb.ParentGateOpened, renamed={"kind": "parent_kind"})

A map is compiled to one function per direction when it is made, as ``dataclasses`` compiles
``__init__``: per message it costs no more than the same lines written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

Conversion = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""How the value of one field is stored, and how it is read back."""

REPEATED: Conversion = (tuple, tuple)
"""Of a tuple of numbers or texts, stored in a repeated field."""

PROPERTIES: Conversion = (dict, dict)
"""Of a mapping, stored in a map."""

BROKER_ENDPOINTS = {
    "pulsar_url": "endpoints.pulsar_url",
    "grpc": "endpoints.grpc",
    "http": "endpoints.http",
}
"""Where messages about brokers have the three addresses."""

Value = TypeVar("Value")
Stored = TypeVar("Stored", bound=Message)


class FieldMap(Generic[Value, Stored]):
    """``Value``, a dataclass, as ``Stored``, a message that has a field for each of its fields.

    ``renamed`` has the stored names that differ; ``endpoints.grpc`` is the field of a message
    inside. ``converted`` has the fields whose value is stored in another form, ``optional``
    those that are None where the message does not have them.

    A field that one of the two classes does not have is an error at import.
    """

    def __init__(
        self,
        value: type[Value],
        stored: type[Stored],
        *,
        renamed: Mapping[str, str] | None = None,
        converted: Mapping[str, Conversion] | None = None,
        optional: Mapping[str, Any] | None = None,
    ) -> None:
        self.value = value
        renamed, converted, optional = renamed or {}, converted or {}, optional or {}
        names = [field.name for field in fields(value)]  # type: ignore[arg-type]
        unknown = {*renamed, *converted, *optional} - {*names}
        assert not unknown, f"{value.__name__} has no fields {unknown}"
        self._scope: dict[str, Any] = {"Value": value, "Stored": stored}
        # Constructor calls by the path of the message they make: "" is ``Stored`` itself.
        calls: dict[str, list[str]] = {"": []}
        reads = []
        for name in names:
            path, _, field = renamed.get(name, name).rpartition(".")
            _check(stored, path, field)
            written, read = f"value.{name}", f"stored.{renamed.get(name, name)}"
            if name in converted:
                self._scope[f"write_{name}"], self._scope[f"read_{name}"] = converted[name]
                written, read = f"write_{name}({written})", f"read_{name}({read})"
            if name in optional:
                self._scope[f"absent_{name}"] = optional[name]
                written = f"None if value.{name} is absent_{name} else {written}"
                read = f"{read} if stored.HasField({field!r}) else absent_{name}"
            calls.setdefault(path, []).append(f"{field}={written}")
            reads.append(read)
        self._write = self._constructor(stored, calls)
        self.to_stored: Callable[[Value], Stored] = self._compiled("value", self._write)
        self.from_stored: Callable[[Stored], Value] = self._compiled(
            "stored", f"Value({', '.join(reads)})"
        )

    @property
    def each(self) -> Conversion:
        """How a tuple of values is stored in a repeated field."""
        to_stored, from_stored = self.to_stored, self.from_stored
        return (
            lambda values: [to_stored(value) for value in values],
            lambda stored: tuple([from_stored(each) for each in stored]),
        )

    @property
    def one(self) -> Conversion:
        """How a value is stored in a field that is a message."""
        return self.to_stored, self.from_stored

    def inside(self, outer: type[Message], field: str) -> Callable[[Value], Any]:
        """Return the function that makes an ``outer`` with nothing but ``field``."""
        _check(outer, "", field)
        self._scope["Outer"] = outer
        return self._compiled("value", f"Outer({field}={self._write})")

    def _constructor(self, stored: type[Stored], calls: dict[str, list[str]]) -> str:
        own = calls.pop("")
        for path, parts in calls.items():
            self._scope[f"Inner_{path}"] = GetMessageClass(_descriptor(stored, path))
            own.append(f"{path}=Inner_{path}({', '.join(parts)})")
        return f"Stored({', '.join(own)})"

    def _compiled(self, argument: str, expression: str) -> Callable[[Any], Any]:
        # The text is made of names of fields alone, which are identifiers.
        compiled: Callable[[Any], Any] = eval(f"lambda {argument}: {expression}", self._scope)
        return compiled


def _check(stored: type[Message], path: str, field: str) -> None:
    """Assert that ``stored`` has ``field``, in its message ``path`` if one is named."""
    descriptor = _descriptor(stored, path)
    assert field in descriptor.fields_by_name, f"{descriptor.name} has no field {field}"


def _descriptor(stored: type[Message], path: str) -> Any:
    return stored.DESCRIPTOR.fields_by_name[path].message_type if path else stored.DESCRIPTOR
