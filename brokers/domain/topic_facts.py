"""Keys of the facts that a topic keeps beside its entries, in its ledger's state."""

from __future__ import annotations

from collections.abc import Mapping

CURSOR_PREFIX = "cursor/"
"""Prefix of the keys of cursors; the name of a durable subscription follows."""

SCHEMA_PREFIX = "schema/"
"""Prefix of the keys of a schema's versions; the decimal version follows."""

SCHEMAS_DELETED_KEY = "schemas_deleted"
"""Its value is the decimal number of the first version that is not deleted."""

TERMINATED_KEY = "terminated"
"""Key of a terminated topic; the value is empty."""

SHADOW_PREFIX = "shadow/"
"""Prefix of keys of what shadows have acknowledged; the canonical name of a shadow follows."""

_OF_SHADOWS = frozenset({SCHEMAS_DELETED_KEY, TERMINATED_KEY})


def source_facts(state: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return those facts of a source that are also facts of its shadows."""
    return {
        key: value
        for key, value in state.items()
        if key.startswith(SCHEMA_PREFIX) or key in _OF_SHADOWS
    }
