"""What stays of runs: of those that went well a little, of the others everything."""

from __future__ import annotations

import json
from pathlib import Path

from nextgen.harness.chaos.run import (
    GREEN_RUNS_KEPT_MAX,
    KEPT,
    RESULT_FILE,
    keep_only,
    remove_older,
)


def make_run(folder: Path, name: str, *, ok: bool = True, valid: bool = True) -> Path:
    run_dir = folder / name
    run_dir.mkdir()
    (run_dir / RESULT_FILE).write_text(json.dumps({"ok": ok, "valid": valid}))
    return run_dir


def test_what_the_nodes_had_is_removed_and_what_others_look_at_stays(tmp_path):
    for name in ("shard-node-1", "history", "export", "logs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("content")
    for name in ("plan.json", "schedule.json", RESULT_FILE):
        (tmp_path / name).write_text("{}")

    keep_only(tmp_path, KEPT)

    assert {path.name for path in tmp_path.iterdir()} == KEPT
    assert (tmp_path / "export" / "file").read_text() == "content"


def test_so_many_runs_that_went_well_are_kept_and_all_others(tmp_path):
    good = [make_run(tmp_path, f"2026-{n:02}-good") for n in range(GREEN_RUNS_KEPT_MAX)]
    bad = make_run(tmp_path, "2025-bad", ok=False)
    invalid = make_run(tmp_path, "2025-invalid", valid=False)
    unfinished = tmp_path / "2025-unfinished"
    unfinished.mkdir()

    remove_older(tmp_path)
    assert set(tmp_path.iterdir()) == {*good, bad, invalid, unfinished}

    later = make_run(tmp_path, "2027-good")
    remove_older(tmp_path)
    assert set(tmp_path.iterdir()) == {*good[1:], later, bad, invalid, unfinished}
