"""When a scalable topic is split and merged by itself: the settings, their check, their levels.

    what a process was started with ◀─ namespace ◀─ topic        field by field

Names are Pulsar's (PIP-483, PIP-486). An override is the JSON that Pulsar's policies have; a name
that is not known here is left to whoever knows it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Final

from nextgen.kernel.limits.scalable import AUTO_SCALE_NUMBER_MAX

AUTO_SCALE_POLICY: Final = "scalableTopicAutoScalePolicy"
"""The name that overrides are stored under, of namespaces and of topics."""

_RATES = ("MsgRateIn", "BytesRateIn", "MsgRateOut", "BytesRateOut")


class InvalidAutoScale(ValueError):
    """An override or a resolved policy makes no sense. The message begins with the field's name."""


@dataclass(frozen=True, slots=True)
class AutoScalePolicy:
    """A resolved policy: every field has a value. Rates are per second, defaults Pulsar's."""

    enabled: bool = True
    max_segments: int = 64
    """Of active segments: beyond it none is split, and consumers share by entry buckets."""
    min_segments: int = 1
    max_dag_depth: int = 10
    """Merges on the longest way to a segment: one with as many is not merged again."""
    split_cooldown_seconds: int = 60
    """From one committed split to the next."""
    merge_cooldown_seconds: int = 300
    rebucket_cooldown_seconds: int = 60
    merge_window_seconds: int = 300
    """How long both of a pair have to be cold before they are merged."""
    split_msg_rate_in_threshold: float = 10_000
    split_bytes_rate_in_threshold: float = 50_000_000
    split_msg_rate_out_threshold: float = 50_000
    split_bytes_rate_out_threshold: float = 250_000_000
    split_vs_rebucket_min_msg_rate_in_threshold: float = 1_000
    """Below it more consumers get more entry buckets instead of more segments."""
    merge_msg_rate_in_threshold: float = 1_000
    """A segment is cold with all rates below these. 0 in one of them: never merge."""
    merge_bytes_rate_in_threshold: float = 5_000_000
    merge_msg_rate_out_threshold: float = 5_000
    merge_bytes_rate_out_threshold: float = 25_000_000

    @property
    def split_thresholds(self) -> tuple[float, float, float, float]:
        """In the order of ``Rates``."""
        return (
            self.split_msg_rate_in_threshold,
            self.split_msg_rate_out_threshold,
            self.split_bytes_rate_in_threshold,
            self.split_bytes_rate_out_threshold,
        )

    @property
    def merge_thresholds(self) -> tuple[float, float, float, float]:
        """In the order of ``Rates``."""
        return (
            self.merge_msg_rate_in_threshold,
            self.merge_msg_rate_out_threshold,
            self.merge_bytes_rate_in_threshold,
            self.merge_bytes_rate_out_threshold,
        )

    @property
    def text(self) -> str:
        """All of it as JSON under Pulsar's names: equal policies have equal texts."""
        values = {name: getattr(self, field) for name, (field, _) in _FIELDS.items()}
        return json.dumps(values, separators=(",", ":"))


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(part.capitalize() for part in rest)


_FIELDS: Final[dict[str, tuple[str, type[Any]]]] = {
    _camel(each.name): (each.name, type(each.default)) for each in fields(AutoScalePolicy)
}
AUTO_SCALE_FIELDS: Final = tuple(_FIELDS)
"""Pulsar's names of all fields."""

DEFAULT_AUTO_SCALE: Final = AutoScalePolicy()


@lru_cache(maxsize=1_024)
def resolve(service: AutoScalePolicy, *overrides: str) -> AutoScalePolicy:
    """Return ``service``, overridden field by field by each of ``overrides``, the last one wins.

    "" overrides nothing.

    Raises:
        InvalidAutoScale: One cannot be read, or what results makes no sense.
    """
    policy = service
    for text in overrides:
        if text:
            policy = replace(policy, **_read(text))
    _check(policy)
    return policy


def with_values(values: Mapping[str, Any]) -> AutoScalePolicy:
    """Return the policy with these values by Pulsar's names, and defaults for the others.

    Raises:
        InvalidAutoScale: A value, or what results, makes no sense.
    """
    policy = replace(DEFAULT_AUTO_SCALE, **_converted(values))
    _check(policy)
    return policy


def default_of(name: str) -> bool | float:
    """Return the default of a field, by Pulsar's name."""
    value: bool | float = getattr(DEFAULT_AUTO_SCALE, _FIELDS[name][0])
    return value


def _check(policy: AutoScalePolicy) -> None:
    refused = problem({name: getattr(policy, field) for name, (field, _) in _FIELDS.items()})
    if refused:
        raise InvalidAutoScale(refused)


def refused_override(text: str) -> str:
    """Return why an override may not be set, "" if it may. Levels are put together later."""
    try:
        _read(text)
    except InvalidAutoScale as error:
        return str(error)
    return ""


def problem(values: Mapping[str, Any]) -> str:
    """Return why a policy may not have ``values``, by Pulsar's names; "" if it may.

    A field that is absent or None is not looked at.
    """
    given = {name: value for name, value in values.items() if value is not None}
    for name in given.keys() & _FIELDS.keys():
        refused = _refused(name, given[name])
        if refused:
            return refused
    least, most = given.get("minSegments", 1), given.get("maxSegments")
    if most is not None and most < least:
        return f"maxSegments is {most}, at least {least} is needed"
    for rate in _RATES:
        split, merge = (given.get(f"{does}{rate}Threshold") for does in ("split", "merge"))
        if split is not None and merge is not None and split <= merge:
            return f"split{rate}Threshold is {split}, more than merge{rate}Threshold is needed"
    return ""


def _refused(name: str, value: Any) -> str:
    if name == "enabled":
        return "" if isinstance(value, bool) else f"{name} is neither true nor false"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and math.isnan(value)):
        return f"{name} is no number"
    most = AUTO_SCALE_NUMBER_MAX if _FIELDS[name][1] is int else sys.float_info.max
    if value > most:  # Infinity, or a whole number that no float can hold.
        return f"{name} is more than {most}"
    if name == "minSegments" and value < 1:
        return f"{name} is {value}, at least 1 is needed"
    is_split_rate = name.startswith("split") and name.removeprefix("split").startswith(_RATES)
    if is_split_rate and value <= 0:
        return f"{name} is {value}, more than 0 is needed"
    if value < 0:
        return f"{name} is {value}, at least 0 is needed"
    return ""


def _read(text: str) -> dict[str, Any]:
    """Return the fields that an override sets."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise InvalidAutoScale(f"{AUTO_SCALE_POLICY} is no JSON: {error}") from error
    except RecursionError:
        raise InvalidAutoScale(f"{AUTO_SCALE_POLICY} is nested too deep") from None
    if not isinstance(values, dict):
        raise InvalidAutoScale(f"{AUTO_SCALE_POLICY} is no object")
    return _converted(values)


def _converted(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by field; names that are not known are left out."""
    known = {name: values[name] for name in values.keys() & _FIELDS.keys()}
    refused = problem(known)
    if refused:
        raise InvalidAutoScale(refused)
    found = {}
    for name, value in known.items():
        field, kind = _FIELDS[name]
        if value is None:
            continue
        if kind is int and not isinstance(value, int) and value != int(value):
            raise InvalidAutoScale(f"{name} is {value}, a whole number is needed")
        # A threshold may be written with and without a fraction: equal ones are to be equal.
        found[field] = kind(value)
    return found
