"""The runner of many seeds: finished seeds stay finished, failures are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.simulation import batch as batch_module
from tests.simulation.batch import Batch, guarded
from tests.simulation.report import SeedReport
from tests.simulation.summary import Summary, print_summary

JOBS = [("engine", 1), ("engine", 2), ("engine", 3)]


def report_of(seed: int, failure: str | None = None) -> SeedReport:
    return SeedReport(
        seed=seed,
        kind="engine",
        steps=1_000,
        virtual_seconds=36.0,
        faults={"crash": 2},
        cells={("crash", "candidate"): 2},
        trace_hash="ab",
        failure=failure,
    )


@pytest.fixture
def _no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        batch_module, "_run_together", lambda jobs: (report_of(seed) for _, seed in jobs)
    )


@pytest.mark.usefixtures("_no_processes")
def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    state = tmp_path / "batch.jsonl"
    interrupted = Batch(JOBS, state).run()
    first = next(interrupted)
    interrupted.close()

    again = Batch(JOBS, state)

    assert again.done == [first]
    assert [report.seed for report in again.run()] == [2, 3]
    assert not state.exists()


@pytest.mark.usefixtures("_no_processes")
def test_a_run_of_other_seeds_or_of_other_code_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "batch.jsonl"
    next(Batch(JOBS, state).run())

    assert Batch(JOBS[:2], state).done == []
    monkeypatch.setattr(batch_module, "code_digest", lambda: "other code")
    assert Batch(JOBS, state).done == []


@pytest.mark.usefixtures("_no_processes")
def test_a_line_that_was_cut_short_is_no_reason_to_give_up(tmp_path: Path) -> None:
    state = tmp_path / "batch.jsonl"
    next(Batch(JOBS, state).run())
    state.write_text(state.read_text()[:-10])

    assert Batch(JOBS, state).done == []


def test_a_simulation_that_breaks_is_a_failed_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_kind: str, _seed: int) -> SeedReport:
        raise KeyError("nobody")

    monkeypatch.setattr(batch_module, "run_one", breaks)

    failure = guarded("engine", 5).failure

    assert failure is not None
    assert "KeyError" in failure


def test_a_simulation_that_never_ends_is_a_failed_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def turns_in_circles(_kind: str, _seed: int) -> SeedReport:
        while True:
            json.dumps(list(range(100)))

    monkeypatch.setattr(batch_module, "run_one", turns_in_circles)
    monkeypatch.setattr(batch_module, "CPU_S_MAX", 0.05)

    failure = guarded("engine", 5).failure

    assert failure is not None
    assert "TooLong" in failure


def test_the_summary_names_what_was_never_reached_and_how_to_replay() -> None:
    summary = Summary("engine")
    summary.add(report_of(1))
    summary.add(report_of(2, failure="two leaders in term 3"))
    console = Console(record=True, width=120)

    print_summary(console, summary, frozenset({("crash", "candidate"), ("crash", "learner")}))

    text = console.export_text()
    assert "2,000 steps, 0.0 simulated hours, 4 faults, 1 failed" in text
    assert "possible and never reached (1 of 2):" in text
    assert "crash at learner" in text
    assert "FAILED engine 2: two leaders in term 3" in text
    assert "make sim SEED=2 KIND=engine TRACE=1" in text
