"""Fields of a JSON document that was written by this program, or should have been."""

from __future__ import annotations


def as_count(value: object) -> int:
    """Return ``value``, which must be a whole number from 0 on.

    Raises:
        ValueError: It is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def as_text(value: object) -> str:
    """Return ``value``, which must be a text.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
