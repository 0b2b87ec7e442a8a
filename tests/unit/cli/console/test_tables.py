"""Tables on terminals of any width: an identifier is never folded."""

from __future__ import annotations

import io
import json
import sys

import pytest

from nextgen.cli.console.output import counted, print_json, print_table

TOPIC = "persistent://acme/orders/a-topic-with-a-rather-long-name-partition-17"
COLUMNS = ("topic", "broker", "session")
ROWS = [(TOPIC, "broker-1", "s" * 36), ("persistent://a/b/c", "broker-22", "t" * 36)]


def printed(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int | None,
    **options: object,
) -> str:
    monkeypatch.setenv("COLUMNS", "" if columns is None else str(columns))
    print_table("a title that is longer than forty columns, of a table", COLUMNS, ROWS, **options)  # type: ignore[arg-type]
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [None, 200, 100, 80, 40, 1])
def test_no_cell_is_folded_at_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int | None
) -> None:
    out = printed(capsys, monkeypatch, columns)

    for cell in (cell for row in ROWS for cell in row):
        assert out.count(cell) == 1
    assert out.splitlines()[0] == "a title that is longer than forty columns, of a table"


def test_extra_columns_are_left_out_only_where_they_do_not_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    roomy = printed(capsys, monkeypatch, 200, extra=("session",))
    narrow = printed(capsys, monkeypatch, 100, extra=("session",))
    wide = printed(capsys, monkeypatch, 100, extra=("session",), wide=True)

    assert ["session" in out for out in (roomy, narrow, wide)] == [True, False, True]
    assert max(map(len, narrow.splitlines())) <= 100


def test_a_table_that_fits_no_way_becomes_records(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = printed(capsys, monkeypatch, 40, extra=("session",))

    assert out.splitlines()[1:3] == [f"topic {TOPIC}", "  broker: broker-1"]


def test_a_description_that_does_not_fit_is_a_field_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    print_table("broker-1", ("", ""), [("status", "live"), ("session", "s" * 36)])

    assert capsys.readouterr().out == f"broker-1\nstatus: live\nsession: {'s' * 36}\n"


@pytest.mark.parametrize(("count", "text"), [(0, "0 moves"), (1, "1 move"), (1_200, "1,200 moves")])
def test_a_number_of_things_names_them_in_its_number(count: int, text: str) -> None:
    assert counted(count, "move") == text


def test_a_table_without_rows_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("brokers", ("broker", "zone"), [])

    assert capsys.readouterr().out == "brokers\n(none)\n"


def test_a_terminal_without_utf_8_gets_lines_and_json_that_it_can_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given: an output of ASCII only, as `main` prepares it.
    written = io.BytesIO()
    terminal = io.TextIOWrapper(written, encoding="ascii", errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")

    # When: a table and a document are printed whose name is not ASCII.
    print_table("brokers", ("broker", "zone"), [("bröker", "a")])
    print_json({"broker": "bröker"})
    terminal.flush()

    # Then: nothing fails, the lines of the table are ASCII, and the document is JSON.
    *table, document = written.getvalue().decode("ascii").splitlines()
    assert any("br\\xf6ker" in line for line in table)
    assert json.loads(document) == {"broker": "bröker"}


def test_without_colours_no_escape_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    assert "\x1b" not in printed(capsys, monkeypatch, 80)
