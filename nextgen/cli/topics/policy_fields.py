"""Fields of policies on the command line: ``retention.time_ms=3600000``, by the contract's names.

Names and types come from the contract itself: a field that is added to ``policies.proto`` can be
set without a change here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance import client_limits
from nextgen.kernel.governance.auto_scale_policy import (
    AUTO_SCALE_FIELDS,
    AUTO_SCALE_POLICY,
    problem,
)
from nextgen.kernel.governance.client_limits import LIMIT_FIELDS
from protos.nextgen.v1.policies_pb2 import Policies

_STORED = "stored."
_AUTO_SCALE = "auto_scale."
_LIMITS = "limits."
_BOOLEANS = {"true": True, "false": False}
_TEXT_CHARACTERS_MAX = 80
"""Characters of the user's input that an error message repeats."""


def set_field(policies: Policies, assignment: str) -> None:
    """Carry out ``path=value``. A list is separated by commas; an enum goes by its short name.
    ``stored.NAME=JSON`` stores a policy of Pulsar; ``auto_scale.NAME=VALUE`` sets one field of the
    one that says when a scalable topic is split and merged. ``limits.POLICY=VALUE`` and
    ``limits.POLICY.FIELD=VALUE`` set what clients may use.

    Raises:
        InvalidRequest: There is no such field, or it cannot have this value.
    """
    path, equals, text = assignment.partition("=")
    if not equals:
        raise InvalidRequest(f"{_shown(assignment)} is not FIELD=VALUE")
    if path.startswith(_STORED):
        policies.stored[path.removeprefix(_STORED)] = text
        return
    if path.startswith(_AUTO_SCALE):
        _set_auto_scale(policies, path.removeprefix(_AUTO_SCALE), text)
        return
    if path.startswith(_LIMITS):
        _set_limit(policies, path, text)
        return
    message, field = _find(policies, path)
    if field.is_repeated:
        values = [_parsed(field, path, part.strip()) for part in text.split(",") if part.strip()]
        message.ClearField(field.name)
        getattr(message, field.name).extend(values)
    else:
        setattr(message, field.name, _parsed(field, path, text.strip()))


def unset_field(policies: Policies, path: str) -> None:
    """Clear a field, or a group of fields such as ``retention``.

    Raises:
        InvalidRequest: There is no such field.
    """
    if path.startswith(_STORED):
        policies.stored.pop(path.removeprefix(_STORED), None)
        return
    if path.startswith(_AUTO_SCALE):
        _set_auto_scale(policies, path.removeprefix(_AUTO_SCALE), None)
        return
    if path.startswith(_LIMITS):
        _set_limit(policies, path, None)
        return
    message, field = _find(policies, path, group_allowed=True)
    message.ClearField(field.name)


def explicit_fields(policies: Policies) -> list[tuple[str, str]]:
    """Return path and value of every field that is set, in the order of ``policies.proto``."""
    return list(_explicit("", policies))


def field_paths() -> Sequence[str]:
    """Return every field that can be set."""
    paths: list[str] = []
    for field in Policies.DESCRIPTOR.fields:
        if field.name == "stored":
            paths += [f"{_STORED}NAME", f"{_AUTO_SCALE}NAME", f"{_LIMITS}NAME"]
            continue
        if field.message_type is not None and field.is_repeated:
            continue
        inner = field.message_type.fields if field.message_type is not None else None
        paths += [f"{field.name}.{each.name}" for each in inner] if inner else [field.name]
    return paths


def _set_auto_scale(policies: Policies, name: str, text: str | None) -> None:
    """Set a field of the stored policy, or remove it: None."""
    if name not in AUTO_SCALE_FIELDS:
        raise InvalidRequest(
            f"{_AUTO_SCALE}{_shown(name)} is none of {', '.join(AUTO_SCALE_FIELDS)}"
        )
    try:
        values = json.loads(policies.stored.get(AUTO_SCALE_POLICY) or "{}")
        given = {} if text is None else {name: json.loads(text.strip().lower())}
    except ValueError:
        raise InvalidRequest(f"{_AUTO_SCALE}{name} is {_shown(text or '')}, no number") from None
    values = {key: value for key, value in values.items() if key != name} | given
    if refused := problem(values):
        raise InvalidRequest(f"{_AUTO_SCALE}{refused}")
    policies.stored.pop(AUTO_SCALE_POLICY, None)
    if values:
        policies.stored[AUTO_SCALE_POLICY] = json.dumps(values)


def _set_limit(policies: Policies, path: str, text: str | None) -> None:
    """Set one limit, or one field of it; None removes it."""
    name, dot, field = path.removeprefix(_LIMITS).partition(".")
    if name not in LIMIT_FIELDS:
        raise InvalidRequest(f"{_shown(path)}: {_LIMITS} is followed by {', '.join(LIMIT_FIELDS)}")
    fields = LIMIT_FIELDS[name]
    if text is None and not dot:
        policies.stored.pop(name, None)
        return
    if field not in (fields or ("",)) or bool(dot) != bool(fields):
        choices = f"{path.split('.')[0]}.{name}.FIELD, FIELD one of {', '.join(fields)}"
        raise InvalidRequest(f"{_shown(path)} is not {choices if fields else f'{_LIMITS}{name}'}")
    try:
        value: Any = None if text is None else json.loads(text.strip().lower())
        if fields:
            before = json.loads(policies.stored.get(name) or "{}")
            value = {key: each for key, each in before.items() if key != field} | (
                {} if value is None else {field: value}
            )
    except (ValueError, AttributeError):
        raise InvalidRequest(f"{path} is {_shown(text or '')}, no number") from None
    if refused := client_limits.problem(name, value):
        raise InvalidRequest(f"{_LIMITS}{name}: {refused}")
    policies.stored.pop(name, None)
    if value != {}:
        policies.stored[name] = json.dumps(value)


def _find(
    policies: Policies, path: str, *, group_allowed: bool = False
) -> tuple[Any, FieldDescriptor]:
    message: Any = policies
    *groups, last = path.strip().split(".")
    for group in groups:
        field = message.DESCRIPTOR.fields_by_name.get(group)
        if field is None or field.message_type is None or field.is_repeated:
            raise _unknown(path)
        message = getattr(message, group)
    field = message.DESCRIPTOR.fields_by_name.get(last)
    if field is None or (field.message_type is not None and not group_allowed):
        raise _unknown(path)
    return message, field


def _parsed(field: FieldDescriptor, path: str, text: str) -> Any:
    if field.enum_type is not None:
        choices = {
            _short_name(field, name): number
            for name, number in field.enum_type.values_by_name.items()
            if number.number
        }
        if text.lower() not in choices:
            raise InvalidRequest(f"{path} is {_shown(text)}, it may be {', '.join(choices)}")
        return choices[text.lower()].number
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if text.lower() not in _BOOLEANS:
            raise InvalidRequest(f"{path} is {_shown(text)}, it may be true or false")
        return _BOOLEANS[text.lower()]
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return text
    try:
        number = int(text)
        # A message of the type refuses what does not fit into the field.
        setattr(_blank(field), field.name, number)
    except ValueError:
        raise InvalidRequest(f"{path} is {_shown(text)}, it must be a number in range") from None
    return number


def _blank(field: FieldDescriptor) -> Any:
    """Return an empty message of the type that has ``field``."""
    policies = Policies()
    if field.containing_type is Policies.DESCRIPTOR:
        return policies
    return next(
        getattr(policies, each.name)
        for each in Policies.DESCRIPTOR.fields
        if each.message_type is field.containing_type
    )


def _explicit(prefix: str, message: Any) -> Any:
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        if field.name == "stored":
            yield from ((f"{_STORED}{name}", value[name]) for name in sorted(value))
        elif field.message_type is not None and field.is_repeated:
            yield from ((f"{path}.{name}", shown) for name, shown in map(_grant, value))
        elif field.message_type is not None:
            yield from _explicit(f"{path}.", value)
        elif field.is_repeated:
            yield path, ",".join(map(str, value))
        elif field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            yield path, _short_name(field, known.name) if known is not None else str(value)
        else:
            yield path, str(value).lower() if isinstance(value, bool) else str(value)


def _grant(message: Any) -> tuple[str, str]:
    """Return the role of a permission and its actions, or a subscription and its roles."""
    name, held = message.DESCRIPTOR.fields[:2]
    values = getattr(message, held.name)
    if held.enum_type is not None:
        known = held.enum_type.values_by_number
        values = [
            _short_name(held, known[value].name) if value in known else str(value)
            for value in values
        ]
    return getattr(message, name.name), ",".join(values)


def _short_name(field: FieldDescriptor, name: str) -> str:
    """Return the name of an enum's value without the common prefix."""
    assert field.enum_type is not None, f"{field.name} is no enum"
    unspecified = field.enum_type.values_by_number[0].name
    return name.removeprefix(unspecified.removesuffix("UNSPECIFIED")).lower()


def _unknown(path: str) -> InvalidRequest:
    return InvalidRequest(
        f"policies have no field {_shown(path)}, they have {', '.join(field_paths())}"
    )


def _shown(text: str) -> str:
    return ascii(text[:_TEXT_CHARACTERS_MAX])
