"""``pipeline rebuild --verify`` on its own cluster: what it asks of the job, and what it tells.

The cluster is none here and the job is a script; tests/chaos has both.
"""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from nextgen.audit.verdict import Verdict
from nextgen.harness.chaos.run import ChaosOptions, Companion, Notice
from nextgen.harness.chaos.summary import RunReport
from nextgen.harness.verify import pipeline_rebuild
from nextgen.harness.verify.pipeline_rebuild import EVENTS_MIN, run_on_own_cluster
from nextgen.runtime.lifecycle.exit_code import ExitCode

GREEN = Verdict(*[0] * 13, (), (), (), {})
DIFFERENT = {"ok": False, "rows_read": 7, "findings": ["a topic is not there"]}

Run = Callable[..., tuple[int, list[str]]]
"""Runs the command with options; returns its exit code, and what the job was asked."""


class CalmRun:
    """A chaos run without faults; ``tidied`` is what it was asked to keep."""

    tidied: ClassVar[list[frozenset[str]]] = []

    def __init__(self, options: ChaosOptions, _notice: Notice, companion: Companion) -> None:
        self.run_dir = options.data_dir / "chaos" / "run"
        self.replay_command = "nextgen chaos --seed 1"
        self.report = RunReport(options.seed, options.minutes, verdict=GREEN)
        self._companion = companion

    async def run(self) -> RunReport:
        self.report.complaints += await self._companion.afterwards(["h:1", "h:2"], self.run_dir)
        return self.report

    def tidy(self, _result: object, kept: frozenset[str]) -> None:
        self.tidied.append(kept)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    async def committed(_targets: Sequence[str]) -> dict[int, int]:
        return {1: EVENTS_MIN}

    async def export(_targets: Sequence[str], _folder: Path, *, stop: asyncio.Event, **_: Any):
        await stop.wait()

    monkeypatch.setattr(pipeline_rebuild, "ChaosRun", CalmRun)
    monkeypatch.setattr(pipeline_rebuild, "committed_positions", committed)
    monkeypatch.setattr(pipeline_rebuild, "run_export", export)
    monkeypatch.setattr(CalmRun, "tidied", [])
    asked, job = tmp_path / "asked", tmp_path / "job"

    def run(says: str, code: int, *options: str) -> tuple[int, list[str]]:
        job.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {asked}\necho \'{says}\'\nexit {code}\n')
        job.chmod(stat.S_IRWXU)
        monkeypatch.setattr(sys, "executable", str(job))
        ended = run_on_own_cluster(["--verify", "--data-dir", str(tmp_path), *options])
        return ended, asked.read_text().splitlines()

    return run


def test_people_are_told_what_the_job_tells_them_and_the_summary_of_chaos(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    code, asked = run("the table of the job", 0)
    assert code == ExitCode.DONE
    assert "--json" not in asked
    out, _ = capfd.readouterr()
    assert out.index("the table of the job") < out.index("minutes of chaos")


def test_programs_get_both_in_one_line(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    said = json.dumps({"ok": True, "rows_read": EVENTS_MIN + 5, "live_items": 3})
    code, asked = run(said, 0, "--json")
    assert (code, "--json" in asked) == (ExitCode.DONE, True)
    told = json.loads(capfd.readouterr().out)
    assert (told["ok"], told["live_items"], told["events"]) == (True, 3, EVENTS_MIN + 5)
    assert told["chaos"]["ok"]


def test_a_report_is_asked_of_the_job(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--report" not in run("", 0)[1]
    monkeypatch.chdir(tmp_path)
    _, asked = run("", 0, "--report", "page.html")
    assert asked[asked.index("--report") + 1] == str(tmp_path / "page.html")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_difference_fails_the_run_whose_traces_are_kept(
    run: Run, capfd: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    code, asked = run(json.dumps(DIFFERENT), ExitCode.CHECK_FAILED, *options)
    assert code == ExitCode.CHECK_FAILED
    out, error = capfd.readouterr()
    assert "the rebuild is not what the cluster has" in error
    if options:
        told = json.loads(out)
        assert (told["ok"], told["chaos"]["ok"]) == (False, False)
        assert "a topic is not there" in told["complaints"]
    (kept,) = CalmRun.tidied
    assert Path(asked[asked.index("--out") + 1]).name in kept


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_job_that_broke_has_verified_nothing(
    run: Run, capfd: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    code, _ = run(json.dumps({"ok": True}), ExitCode.CANNOT_RUN, *options)
    assert code == ExitCode.NO_ANSWER
    assert "the job ended with code 78" in capfd.readouterr().err
