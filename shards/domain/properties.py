"""A properties map as the aggregates keep it: pairs, each key once, ascending by key.

Properties with the marks of a rename of a parent (``nextgen.kernel.routing.renamed_parents``) are
set by that rename alone.
"""

from __future__ import annotations

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.broker_kind import BROKER_KIND_PROPERTY
from nextgen.kernel.limits.cluster import (
    PROPERTIES_BYTES_MAX,
    PROPERTIES_MAX,
    PROPERTY_KEY_BYTES_MAX,
    PROPERTY_VALUE_BYTES_MAX,
)
from nextgen.kernel.routing.renamed_parents import is_mark

Properties = tuple[tuple[str, str], ...]
"""Sorted by key, so that equal maps are equal values."""


def check_properties(properties: Properties) -> Rejected | None:
    """Return why ``properties`` may not be stored, None if they may."""
    if not properties:
        return None
    # Renaming what has as many properties as are allowed is allowed, and so is what a topic has of
    # its namespace.
    properties = tuple(
        [pair for pair in properties if not is_mark(pair[0]) and pair[0] != BROKER_KIND_PROPERTY]
    )
    if len(properties) > PROPERTIES_MAX:
        return _exceeded(f"{len(properties)} properties given, at most {PROPERTIES_MAX}")
    total_bytes = 0
    for key, value in properties:
        key_bytes, value_bytes = len(key.encode()), len(value.encode())
        if not 0 < key_bytes <= PROPERTY_KEY_BYTES_MAX:
            return _exceeded(f"a property key has {key_bytes} bytes, 1 to {PROPERTY_KEY_BYTES_MAX}")
        if value_bytes > PROPERTY_VALUE_BYTES_MAX:
            return _exceeded(
                f"property {key!a} has {value_bytes} bytes, at most {PROPERTY_VALUE_BYTES_MAX}"
            )
        total_bytes += key_bytes + value_bytes
    if total_bytes > PROPERTIES_BYTES_MAX:
        return _exceeded(f"properties have {total_bytes} bytes, at most {PROPERTIES_BYTES_MAX}")
    return None


def with_marks(wanted: Properties, present: Properties = ()) -> Properties:
    """Return what a user sets: ``wanted``, but of marks those that are ``present``.

    What was read of one parent can be set of another, as if the marks had not been read.
    """
    if not any(is_mark(key) for key, _ in (*wanted, *present)):
        return wanted
    kept = [pair for pair in wanted if not is_mark(pair[0])]
    return tuple(sorted([*kept, *(pair for pair in present if is_mark(pair[0]))]))


def _exceeded(message: str) -> Rejected:
    return Rejected(RejectionCode.LIMIT_EXCEEDED, f"{message} are allowed")
