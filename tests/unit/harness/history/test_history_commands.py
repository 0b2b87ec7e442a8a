"""``nextgen history check``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextgen.harness.history import History, Recorder
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode
from tests.support.history.plants import stale_read
from tests.support.history.world import World


def recorded(directory: Path, history: History) -> Path:
    with Recorder(directory / "all.jsonl") as recorder:
        recorder.write(history.run)
        for part in (history.operations, history.publishes, history.received, history.drained):
            recorder.write_all(part)
        for rest in (history.watch_records, history.log, history.final_items, history.faults):
            recorder.write_all(rest)
        recorder.write_all((*history.final_listings, *history.view_hashes))
    return directory


def test_a_green_history_ends_with_zero_and_numbers(tmp_path: Path) -> None:
    history = World(4).history()

    result = CliRunner().invoke(
        app, ["history", "check", str(recorded(tmp_path, history)), "--json"]
    )

    assert result.exit_code == ExitCode.DONE
    told = json.loads(result.stdout)
    assert told["ok"] is True
    assert told["events"] == len(history.log)
    assert told["faults"] == {"kill": len(history.faults)}


def test_a_spoilt_history_ends_with_four_a_sentence_and_a_page(tmp_path: Path) -> None:
    directory = recorded(tmp_path / "history", stale_read(World(4).history()))
    page = tmp_path / "page.html"

    result = CliRunner().invoke(app, ["history", "check", str(directory), "--report", str(page)])

    assert result.exit_code == ExitCode.CHECK_FAILED
    assert "violation (linearizability)" in result.output
    assert "violation" in page.read_text()


@pytest.mark.parametrize("content", [None, "{}\n", "nonsense\n"])
def test_what_is_no_history_is_refused_by_name(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "x.jsonl").write_text(content)

    result = CliRunner().invoke(app, ["history", "check", str(tmp_path)])

    assert result.exit_code == ExitCode.USAGE
