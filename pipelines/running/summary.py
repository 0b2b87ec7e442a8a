"""A job's summary: one JSON line, or a table, and the check that its rows add up."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from nextgen.kernel.input.printable import printable, printable_json
from pipelines.reporting.value_text import value_text

FINDINGS_SHOWN_MAX = 20
"""Findings that are printed; the job's files have all of them."""


class RowsLost(Exception):
    """Rows went missing between a job's input and its result: a bug, which is never hidden."""


@dataclass(slots=True)
class Summary:
    """Numbers of one run. ``findings`` are sentences; a job with findings has failed."""

    job: str
    rows_in: int = 0
    """Number of rows by the input's own description."""
    rows_read: int = 0
    """Rows that Spark counted while it read them."""
    rows_accounted: dict[str, int] = field(default_factory=dict)
    """Rows by their use: used, beyond the asked position, ... The sum is ``rows_read``."""
    numbers: dict[str, Any] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    findings_total: int = 0
    elapsed_s: float = 0.0
    outputs: dict[str, str] = field(default_factory=dict)
    """Written files and folders, by their kind."""
    verdict: str = ""
    """The answer in one sentence; without one, the number of findings is."""

    @property
    def sentence(self) -> str:
        """The last line for people: what the job found."""
        return self.verdict or f"{self.job}: {self.findings_total:,} findings"

    @property
    def is_ok(self) -> bool:
        return not self.findings and not self.findings_total

    def find(self, sentence: str) -> None:
        """Add a finding."""
        self.findings_total += 1
        if len(self.findings) < FINDINGS_SHOWN_MAX:
            self.findings.append(sentence)

    def reconcile(self) -> None:
        """Check that every row of the input is accounted for.

        Raises:
            RowsLost: A row is not.
        """
        accounted = sum(self.rows_accounted.values())
        if self.rows_in != self.rows_read or accounted != self.rows_read:
            raise RowsLost(
                f"{self.job}: the input has {self.rows_in} rows, {self.rows_read} were read, "
                f"{accounted} are accounted for ({self.rows_accounted})"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        return {
            "job": self.job,
            "ok": self.is_ok,
            "rows_in": self.rows_in,
            "rows_read": self.rows_read,
            "rows_accounted": self.rows_accounted,
            **self.numbers,
            "findings": self.findings,
            "findings_total": self.findings_total,
            "elapsed_s": round(self.elapsed_s, 2),
            "outputs": self.outputs,
        }


def print_summary(summary: Summary, *, as_json: bool) -> None:
    """Print one line of JSON, or a table for people, to stdout."""
    if as_json:
        document = json.dumps(summary.as_dict(), ensure_ascii=False, default=str)
        sys.stdout.write(printable_json(document) + "\n")
        sys.stdout.flush()
        return
    # Without markup: users' names may contain brackets and colons.
    console = Console(highlight=False, markup=False, emoji=False)
    _print_rows(console, f"pipeline {summary.job}", _rows(summary))
    for sentence in summary.findings:
        console.print(printable(f"finding: {sentence}"))
    more = summary.findings_total - len(summary.findings)
    if more:
        console.print(f"and {more:,} findings more")
    console.print(printable(summary.sentence), style="bold", soft_wrap=True)


def _rows(summary: Summary) -> list[tuple[str, str]]:
    return [
        ("rows read", f"{summary.rows_read:,} of {summary.rows_in:,}"),
        *((f"  {name}", f"{rows:,}") for name, rows in summary.rows_accounted.items()),
        *((printable(name), printable(value)) for name, value in _flat(summary.numbers)),
        *((name, printable(path)) for name, path in summary.outputs.items()),
        ("seconds", f"{summary.elapsed_s:.1f}"),
    ]


def _print_rows(console: Console, title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print a table, or a line for each row where a table would cut or fold names."""
    table = Table(title=title, title_justify="left", show_header=False)
    for row in rows:
        table.add_row(*row)
    unbounded = console.options.update(max_width=sys.maxsize)
    if console.measure(table, options=unbounded).maximum <= console.width:
        console.print(table)
        return
    console.print(title)
    for name, value in rows:
        console.print(f"{name}  {value}", soft_wrap=True)


def _flat(numbers: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in numbers.items():
        label = name.replace("_", " ")
        if isinstance(value, Mapping):
            rows += [(f"{label}: {key}", _words(one)) for key, one in value.items()]
        elif isinstance(value, list | tuple):
            rows += [(label, _words(one)) for one in value]
        else:
            rows.append((label, value_text(value)))
    return rows


def _words(value: Any) -> str:
    """Return a value in words: of a map its parts, each after its name."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {_words(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    return value_text(value)
