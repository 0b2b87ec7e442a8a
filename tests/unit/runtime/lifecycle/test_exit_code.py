"""Exit codes of commands that end unexpectedly."""

from __future__ import annotations

import pytest
import typer

from nextgen.runtime.lifecycle.exit_code import ExitCode, run_program


def ends_with(code: ExitCode | None) -> typer.Typer:
    """Return a program that ends with ``code``; None: that breaks."""
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def work() -> None:
        if code is None:
            raise ZeroDivisionError("a mistake")
        raise typer.Exit(code)

    return app


def run(code: ExitCode | None) -> int:
    with pytest.raises(SystemExit) as ended:
        run_program(lambda: ends_with(code)([]))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_mistake_is_a_traceback_and_a_code_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(None) == ExitCode.BROKEN
    assert "ZeroDivisionError: a mistake" in capsys.readouterr().err


@pytest.mark.parametrize("code", [ExitCode.DONE, ExitCode.REFUSED, ExitCode.CHECK_FAILED])
def test_every_other_end_is_as_it_was_meant(
    code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(code) == code
    assert capsys.readouterr().err == ""
