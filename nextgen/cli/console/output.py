"""The output of commands: JSON for programs, tables and lines for people, all on stdout.

All output goes through this module. Names are printed unchanged, also with brackets and colons;
control characters for the terminal are shown as escapes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message
from rich.console import Console
from rich.table import Table

from nextgen.kernel.input.printable import printable, printable_json


def plain_console(*, stderr: bool = False) -> Console:
    """Return a console without markup, on the present standard output or error.

    It does not escape: pass it ``printable`` text.
    """
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def print_line(text: str, *, style: str | None = None, stderr: bool = False) -> None:
    """Print one line, however long."""
    plain_console(stderr=stderr).print(printable(text), style=style, soft_wrap=True)


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    document = json.dumps(value, ensure_ascii=False, default=str)
    sys.stdout.write(printable_json(document) + "\n")
    sys.stdout.flush()


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; columns whose cells are numbers are aligned to the right."""
    table = Table(
        title=printable(title), title_justify="left", title_style="bold", header_style="dim"
    )
    for place, name in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[place], int | float) for row in rows)
        table.add_column(printable(name), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*[printable(_cell(value)) for value in row])
    plain_console().print(table)


def as_dict(message: Message) -> dict[str, Any]:
    """Return a message with the field names of the contracts.

    Numbers stay numbers, bytes become hexadecimal digits. Fields that are not set are shown with
    their default; messages that are not set, and the other fields of a oneof, are left out.
    """
    shown: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            shown[field.name] = dict(value)
        elif field.is_repeated:
            shown[field.name] = [_plain(field, one) for one in value]
        else:
            shown[field.name] = _plain(field, value)
    return shown


def _is_map(field: Any) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _plain(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if isinstance(value, Message):
        return as_dict(value)
    return value.hex() if isinstance(value, bytes) else value


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return str(value)
