"""Avro's description of a Python class, which servers use to compare versions of a schema."""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from pydantic import BaseModel

from nextgen.client.st.errors import InvalidSettings

_PLAIN: dict[Any, str] = {
    str: "string",
    bytes: "bytes",
    bool: "boolean",
    int: "long",
    float: "double",
    type(None): "null",
}
_ABSENT = object()


def record_of(kind: type) -> dict[str, Any]:
    """Return the Avro record of a dataclass or a pydantic model.

    Raises:
        InvalidSettings: A field has a type that Avro has not.
    """
    return _record(kind, set())


def _record(kind: type, known: set[str]) -> dict[str, Any]:
    known.add(kind.__name__)
    return {
        "type": "record",
        "name": kind.__name__,
        "fields": [_field(name, hint, default, known) for name, hint, default in _fields_of(kind)],
    }


def _fields_of(kind: type) -> list[tuple[str, Any, Any]]:
    hints = typing.get_type_hints(kind)
    if issubclass(kind, BaseModel):
        return [
            (
                name,
                hints[name],
                _ABSENT if each.is_required() else _default_of(each.default, each.default_factory),
            )
            for name, each in kind.model_fields.items()
        ]
    return [
        (each.name, hints[each.name], _default_of(each.default, each.default_factory))
        for each in fields(kind)  # type: ignore[arg-type]
    ]


def _default_of(default: Any, factory: Any) -> Any:
    if factory is list or factory is dict:
        return factory()
    return _ABSENT if default is MISSING else default


def _field(name: str, hint: Any, default: Any, known: set[str]) -> dict[str, Any]:
    field: dict[str, Any] = {"name": name, "type": _type_of(name, hint, known)}
    if default is None or isinstance(default, str | bool | int | float | list | dict):
        field["default"] = default
    if default is None and isinstance(field["type"], list):
        # The default of a union is one of its first type.
        field["type"] = ["null", *(each for each in field["type"] if each != "null")]
    return field


def _type_of(name: str, hint: Any, known: set[str]) -> Any:
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return [_type_of(name, each, known) for each in arguments]
    if origin in (list, tuple, set) and arguments:
        return {"type": "array", "items": _type_of(name, arguments[0], known)}
    if origin is dict and arguments and arguments[0] is str:
        return {"type": "map", "values": _type_of(name, arguments[1], known)}
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, BaseModel)):
        return hint.__name__ if hint.__name__ in known else _record(hint, known)
    raise InvalidSettings(f"field {name} has type {hint!r}, which an Avro record cannot have")
