"""One self-contained page of HTML: tables, sentences and plots as SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from pipelines.errors import JobRefused
from pipelines.reporting.value_text import value_text

ROWS_SHOWN_MAX = 200
"""Rows of one table. People read the page."""


def plain_label(name: object) -> str:
    """Return a name with dollar signs escaped, which begin a formula in a plot's label."""
    return str(name).replace("$", r"\$")


@dataclass(slots=True)
class _Section:
    heading: str
    text: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    rows_left_out: int = 0
    plot: str = ""


@dataclass(slots=True)
class Page:
    """A page, built from top to bottom and written once. All text is escaped."""

    title: str
    subtitle: str = ""
    verdict: str = ""
    """The answer in one sentence: it stands first."""
    sections: list[_Section] = field(default_factory=list)

    def add_text(self, heading: str, text: str) -> None:
        self.sections.append(_Section(heading, text))

    def add_table(
        self, heading: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], text: str = ""
    ) -> None:
        """Add a table. Of more than ``ROWS_SHOWN_MAX`` rows it shows the first, with a remark."""
        shown = rows[:ROWS_SHOWN_MAX]
        self.sections.append(_Section(heading, text, columns, shown, len(rows) - len(shown)))

    def add_plot(self, heading: str, figure: Figure, text: str = "") -> None:
        """Add a matplotlib figure, as vectors."""
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", bbox_inches="tight", metadata={"Date": None})
        svg = drawn.getvalue()
        # Drop the XML prologue, which may not stand inside a page.
        self.sections.append(_Section(heading, text, plot=Markup(svg[svg.index("<svg") :])))

    def render(self) -> str:
        """Return the page."""
        environment = Environment(
            loader=PackageLoader("pipelines.reporting"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters["cell"] = value_text
        rendered: str = environment.get_template("page.html").render(page=self)
        return rendered

    def write(self, path: Path) -> None:
        """Write the page, whole or not at all.

        Raises:
            JobRefused: The disk refuses.
        """
        rendered = self.render()
        draft = path.with_name(f".{path.name}.draft")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(rendered, encoding="utf-8")
            draft.replace(path)
        except OSError as error:
            raise JobRefused(f"{path} cannot be written: {error.strerror or error}") from error
