"""The command of the generator: what is refused before a JVM starts."""

from __future__ import annotations

from pathlib import Path

import typer
from typer.testing import CliRunner

from nextgen.runtime.lifecycle.exit_code import ExitCode
from pipelines.generate.command import register


def test_a_history_that_cannot_be_made_is_wrong_usage_and_touches_nothing(tmp_path: Path) -> None:
    app = typer.Typer()
    register(app)
    out = tmp_path / "history"
    result = CliRunner().invoke(app, [str(out), "--topics", "0"])
    assert result.exit_code == ExitCode.USAGE
    assert "topics: 0 is not between" in result.stderr
    assert not out.exists()
