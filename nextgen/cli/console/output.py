"""The output of commands: JSON for programs, tables and lines for people, all on stdout.

All output goes through this module. Names are printed unchanged, also with brackets and colons;
control characters for the terminal are shown as escapes. No cell is ever folded: an identifier can
be copied from any terminal, however narrow. Without a terminal tables are as wide as they need.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Collection, Sequence
from typing import Any

from google.protobuf.message import Message
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from nextgen.kernel.input.printable import printable, printable_json

_printed: list[bool] = []


def has_printed() -> bool:
    """Return whether this process has printed anything, or shows progress."""
    return bool(_printed)


def plain_console(*, stderr: bool = False, columns: int | None = None) -> Console:
    """Return a console without markup, on the present standard output or error.

    It does not escape: pass it ``printable`` text. ``columns``: its width, else the terminal's.
    """
    _printed[:] = [True]
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=columns)


def print_line(text: str, *, style: str | None = None, stderr: bool = False) -> None:
    """Print one line, however long."""
    plain_console(stderr=stderr).print(printable(text), style=style, soft_wrap=True)


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    _printed[:] = [True]
    document = json.dumps(value, ensure_ascii=not takes_unicode(), default=str)
    sys.stdout.write(printable_json(document) + "\n")
    sys.stdout.flush()


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    extra: Collection[str] = (),
    wide: bool = False,
) -> None:
    """Print a table; columns whose cells are numbers are aligned to the right.

    On a terminal that is too narrow the ``extra`` columns are left out, unless it is to be
    ``wide``. If that is not enough, each row becomes a record, with one field a line.
    """
    if title:
        print_line(title, style="bold")
    if not rows:
        print_line("(none)")
        return
    limit = None if wide else terminal_columns()
    shown = list(range(len(columns)))
    if not _fits(columns, rows, shown, limit):
        shown = [place for place in shown if columns[place] not in extra]
    if _fits(columns, rows, shown, limit):
        _print_grid(columns, rows, shown)
    else:
        _print_records(columns, rows, shown)


def terminal_columns() -> int | None:
    """Return the width of the terminal; None if the output goes to a file or a pipe."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _fits(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    shown: Sequence[int],
    limit: int | None,
) -> bool:
    return limit is None or _grid_width(columns, rows, shown) <= limit


def _grid_width(
    columns: Sequence[str], rows: Sequence[Sequence[object]], shown: Sequence[int]
) -> int:
    widths = [
        max(cell_len(printable(columns[place])), *(cell_len(_text(row[place])) for row in rows))
        for place in shown
    ]
    return sum(widths) + 3 * len(widths) + 1  # Two spaces of padding and a line for each, and one.


def _print_grid(
    columns: Sequence[str], rows: Sequence[Sequence[object]], shown: Sequence[int]
) -> None:
    table = Table(header_style="dim")
    for place in shown:
        is_number = all(isinstance(row[place], int | float) for row in rows)
        table.add_column(
            printable(columns[place]), justify="right" if is_number else "left", no_wrap=True
        )
    for row in rows:
        table.add_row(*[_text(row[place]) for place in shown])
    plain_console(columns=_grid_width(columns, rows, shown)).print(table)


def _print_records(
    columns: Sequence[str], rows: Sequence[Sequence[object]], shown: Sequence[int]
) -> None:
    if len(shown) == 2 and not columns[shown[0]]:
        for row in rows:
            print_line(": ".join(_cell(row[place]) for place in shown))
        return
    for row in rows:
        first, *rest = shown
        print_line(f"{columns[first]} {_cell(row[first])}".lstrip())
        for place in rest:
            if (text := _cell(row[place])) != "":
                print_line(f"  {columns[place]}: {text}" if columns[place] else f"  {text}")


def counted(count: int, noun: str) -> str:
    """Return a number of things, such as "1 move" or "1,200 moves"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def about(name: str, sentence: str) -> str:
    """Return ``sentence`` with its subject, which stands in it once."""
    return subject(name, sentence) + sentence


def subject(name: str, sentence: str) -> str:
    """Return what to print before ``sentence`` so that it names its subject, "" if it does."""
    local = name.rpartition("://")[2]
    return "" if local and local in sentence else f"{name}: "


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


def _text(value: object) -> str:
    return printable(_cell(value))


def takes_unicode() -> bool:
    """Return whether standard output can show all signs."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return str(value)
