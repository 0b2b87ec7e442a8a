"""Rows that went missing are an error, whatever the rest looks like."""

from __future__ import annotations

import json

import pytest

from pipelines.running.summary import FINDINGS_SHOWN_MAX, RowsLost, Summary, print_summary


def test_rows_that_add_up_are_reconciled() -> None:
    summary = Summary("rebuild", rows_in=10, rows_read=10, rows_accounted={"used": 7, "later": 3})
    summary.reconcile()
    assert summary.is_ok


@pytest.mark.parametrize(
    ("rows_read", "used"), [(9, 9), (10, 9), (10, 11)], ids=["unread", "dropped", "made up"]
)
def test_rows_that_do_not_add_up_are_an_error(rows_read: int, used: int) -> None:
    summary = Summary("rebuild", rows_in=10, rows_read=rows_read, rows_accounted={"used": used})
    with pytest.raises(RowsLost, match="the input has 10 rows"):
        summary.reconcile()


def test_findings_beyond_what_is_shown_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary("audit")
    for number in range(FINDINGS_SHOWN_MAX + 5):
        summary.find(f"finding {number}")
    print_summary(summary, as_json=True)
    told = json.loads(capsys.readouterr().out)

    assert (told["ok"], told["findings_total"]) == (False, FINDINGS_SHOWN_MAX + 5)
    assert len(told["findings"]) == FINDINGS_SHOWN_MAX


def test_a_table_names_what_became_of_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary("rebuild", rows_in=1234, rows_read=1234, rows_accounted={"used": 1234})
    summary.find("positions 3 to 4 are missing")
    print_summary(summary, as_json=False)
    told = capsys.readouterr().out

    assert "1,234 of 1,234" in told
    assert "finding: positions 3 to 4 are missing" in told


def test_a_job_ends_in_its_verdict_and_prints_no_python(
    capsys: pytest.CaptureFixture[str],
) -> None:
    months = {"2026-11": {"bad_minutes": 3, "is_met": False}}
    notes = ["a gap", "a late window"]
    judged = Summary("slo", numbers={"months": months, "notes": notes}, verdict="SLO missed: x")
    print_summary(judged, as_json=False)
    audited = Summary("audit")
    print_summary(audited, as_json=False)
    printed = capsys.readouterr().out

    lines = printed.splitlines()
    assert "bad minutes 3, is met no" in printed
    assert not set("{}[]'") & set(printed)
    assert [line for line in lines if ": " in line and "│" not in line] == [
        "SLO missed: x",
        "audit: 0 findings",
    ]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_name_is_neither_cut_nor_folded_however_narrow_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    topic = "persistent://acme-18/orders/views-of-a-rather-long-name-88061234"

    print_summary(Summary("load", numbers={"busiest_topic": topic}), as_json=False)

    assert topic in capsys.readouterr().out


@pytest.mark.parametrize("name", ["a[/b]", "a[red]b", "a:cat:b"])
def test_names_are_shown_as_they_are(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary("load", numbers={"busiest_topic": name, "growth": {name: 0.5}})
    summary.outputs["tables"] = name
    summary.find(f"{name} is full")
    print_summary(summary, as_json=False)

    assert capsys.readouterr().out.count(name) == 4
