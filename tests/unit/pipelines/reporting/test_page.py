"""A report is one file that needs nothing beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from pipelines.errors import JobRefused
from pipelines.reporting.page import ROWS_SHOWN_MAX, Page, plain_label


def test_names_that_users_made_are_escaped(tmp_path: Path) -> None:
    page = Page("Load", "of <b>one</b> export")
    page.add_table("Topics", ["name", "rate"], [["<script>alert(1)</script>", 1234.5]])
    page.write(tmp_path / "deep" / "load.html")
    written = (tmp_path / "deep" / "load.html").read_text()

    assert "<script>" not in written
    assert "&lt;script&gt;" in written
    assert "1,234.500" in written


def test_a_plot_is_in_the_page_itself() -> None:
    figure = Figure(figsize=(4, 2))
    figure.subplots().plot([1, 2, 3], [4, 1, 7])
    page = Page("Load")
    page.add_plot("By hour", figure, "Messages a second.")
    written = page.render()

    assert "<svg" in written
    assert "<?xml" not in written
    assert 'src="http' not in written


def test_a_long_table_says_what_it_leaves_out() -> None:
    page = Page("Load")
    page.add_table("Topics", ["rank"], [[number] for number in range(ROWS_SHOWN_MAX + 3)])
    assert "3 more rows" in page.render()


def test_a_page_that_cannot_be_written_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("dear")
    with pytest.raises(JobRefused, match=r"load\.html cannot be written"):
        Page("Load").write(tmp_path / "file" / "load.html")


def test_a_name_with_dollar_signs_is_no_formula(tmp_path: Path) -> None:
    figure = Figure(figsize=(4, 2))
    figure.subplots().set_yticks([0], labels=[plain_label(r"a$\b$c")])
    page = Page("Load")
    page.add_plot("Brokers", figure)

    assert r"a$\b$c" in page.render()
