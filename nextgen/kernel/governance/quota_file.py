"""The file that carries quotas from the pipeline that computes them to the command that sets them.

JSON with sorted keys: the same quotas are the same bytes. Unknown members are refused, because
their author relied on them.

    format, format_version   "nextgen-quotas", 1
    version                  of the quotas: one above those that hold when they are set
    brokers, tenants         units by broker id, by tenant; one that is not named has no quota
    source                   digest of what they were made from, "" if by hand
    made_from                what that was, for people
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.input.json_fields import parse_json
from nextgen.kernel.limits.cluster import BROKERS_MAX, STORED_INTEGER_MAX
from nextgen.kernel.limits.placement import (
    QUOTA_FILE_BYTES_MAX,
    QUOTA_SOURCE_BYTES_MAX,
    QUOTA_TENANTS_MAX,
    QUOTA_UNITS_MAX,
)

FORMAT = "nextgen-quotas"
FORMAT_VERSION = 1

_MEMBERS = ("version", "brokers", "tenants", "source", "made_from")


@dataclass(frozen=True, slots=True)
class QuotaFile:
    """The content of a file of quotas."""

    version: int
    brokers: Mapping[str, int] = field(default_factory=dict)
    tenants: Mapping[str, int] = field(default_factory=dict)
    source: str = ""
    made_from: Mapping[str, Any] = field(default_factory=dict)


def to_bytes(quotas: QuotaFile) -> bytes:
    """Return the file."""
    document = {"format": FORMAT, "format_version": FORMAT_VERSION}
    document |= {name: getattr(quotas, name) for name in _MEMBERS}
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def from_bytes(content: bytes) -> QuotaFile:
    """Parse a file of quotas.

    Raises:
        InvalidRequest: It is not such a file, of a later format, or has an invalid value.
    """
    if len(content) > QUOTA_FILE_BYTES_MAX:
        raise InvalidRequest(f"quotas take at most {QUOTA_FILE_BYTES_MAX} bytes")
    try:
        document = parse_json(content)
    except ValueError as error:
        raise InvalidRequest(f"the quotas are no JSON: {error}") from None
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise InvalidRequest(f"this is no file of quotas: its format is not {FORMAT!r}")
    format_version = document.pop("format_version", None)
    if format_version != FORMAT_VERSION:
        raise InvalidRequest(
            f"the quotas are of format version {format_version!r}, {FORMAT_VERSION} is known here"
        )
    unknown = sorted(document.keys() - set(_MEMBERS))
    if unknown:
        raise InvalidRequest(f"quotas have no member {unknown[0]!r}")
    made_from = document.get("made_from", {})
    if not isinstance(made_from, dict):
        raise InvalidRequest("what quotas were made from is an object")
    return QuotaFile(
        _whole("version", document.get("version"), 1, STORED_INTEGER_MAX),
        _units("brokers", document.get("brokers", {}), BROKERS_MAX),
        _units("tenants", document.get("tenants", {}), QUOTA_TENANTS_MAX),
        _source(document.get("source", "")),
        made_from,
    )


def _whole(what: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidRequest(f"{what} is {value!r}, a number from {least} to {most} can be")
    return value


def _units(what: str, named: object, most: int) -> dict[str, int]:
    if not isinstance(named, dict):
        raise InvalidRequest(f"{what} of quotas are an object: names, and their units")
    if len(named) > most:
        raise InvalidRequest(f"the quotas name {len(named)} {what}, at most {most} can be")
    return {
        name: _whole(f"the quota of {name!r}", units, 0, QUOTA_UNITS_MAX)
        for name, units in named.items()
    }


def _source(value: object) -> str:
    if not isinstance(value, str) or len(value.encode()) > QUOTA_SOURCE_BYTES_MAX:
        raise InvalidRequest(f"the source is a text of at most {QUOTA_SOURCE_BYTES_MAX} bytes")
    return value
