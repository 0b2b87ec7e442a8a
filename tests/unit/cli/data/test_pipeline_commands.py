"""``pipeline JOB``: a job's process, and how its end is reported."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nextgen.cli.data import pipeline_commands
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode


def run_job(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Result:
    """Run ``pipeline audit history --json`` with a job that is this shell script."""
    job = folder / "job"
    job.write_text(f"#!/bin/sh\n{script}\n")
    job.chmod(stat.S_IRWXU)
    monkeypatch.setattr(sys, "executable", str(job))
    return CliRunner().invoke(app, ["pipeline", "audit", "history", "--json"])


@pytest.mark.parametrize("code", [ExitCode.DONE, ExitCode.CHECK_FAILED, ExitCode.BROKEN])
def test_a_job_gets_its_arguments_and_its_code_is_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: ExitCode
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_job(tmp_path, monkeypatch, f'echo "$@" > asked; exit {code}')
    assert result.exit_code == code
    assert (tmp_path / "asked").read_text() == "-m pipelines audit history --json\n"


def test_a_job_that_was_interrupted_is_no_broken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_job(tmp_path, monkeypatch, "kill -INT $$")
    assert (result.exit_code, result.stderr) == (ExitCode.INTERRUPTED, "")


def test_a_killed_job_is_reported_as_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_job(tmp_path, monkeypatch, "kill -KILL $$")
    assert result.exit_code == ExitCode.BROKEN
    assert "killed by SIGKILL" in result.stderr


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_works_without_the_libraries(monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    monkeypatch.setattr(pipeline_commands, "LIBRARIES", ("a_library_nobody_has",))

    result = CliRunner().invoke(app, ["pipeline", "audit", flag])

    assert result.exit_code == ExitCode.DONE
    assert "Find gaps, overlaps" in result.output
    assert "make setup-pipeline" in result.output


def test_missing_libraries_are_named_with_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_commands, "LIBRARIES", ("a_library_nobody_has",))
    result = run_job(tmp_path, monkeypatch, "exit 0")
    assert result.exit_code == ExitCode.CANNOT_RUN
    assert "make setup-pipeline" in result.stderr
