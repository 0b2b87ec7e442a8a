"""Marks of a rename of a tenant or namespace, among the properties of both names.

A rename takes as long as its topics, and whoever goes on with it finds what was begun: the former
name has the mark of the new one, the new name is of the parent that it was copied from. Shards let
renames alone set them, and nobody else remove them.
"""

from __future__ import annotations

from collections.abc import Mapping

_MARKS = "nextgen.rename."

RENAMED_TO = f"{_MARKS}to"
"""At the former name: the new one."""

RENAMED_FROM = f"{_MARKS}from"
"""At the new name: the former one."""

RENAMED_FROM_ID = f"{_MARKS}from_id"
"""At the new name: the id of the parent with the former one."""

RENAMED_COPY = f"{_MARKS}copy"
"""At the new name: a digest of the properties and policies that it was created with."""


def is_mark(key: str) -> bool:
    """Return whether a property with this key is a mark of a rename."""
    return key.startswith(_MARKS)


def without_marks(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that users set."""
    return {key: value for key, value in properties.items() if not is_mark(key)}


def is_of_one_rename(properties: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Return whether both are of the new name of one parent."""
    parent_id = properties.get(RENAMED_FROM_ID, "")
    return bool(parent_id) and parent_id == others.get(RENAMED_FROM_ID)
