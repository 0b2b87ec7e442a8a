"""The text form of values, in the table of a summary and in the tables of a page."""

from __future__ import annotations


def value_text(value: object) -> str:
    """Return yes or no, a number with thousands separators, "" for None, or the text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return str(value)
