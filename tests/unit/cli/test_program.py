"""What a run of ``nextgen`` loads: the command that it names, and help that can be read."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
import typer.main
from typer.testing import CliRunner

from nextgen.main import PLAIN_HELP_COLUMNS_MAX, app, command_in, program

WHOLE = typer.main.get_command(app)
assert isinstance(WHOLE, click.Group) or hasattr(WHOLE, "commands")


def names_of(command: click.Command) -> list[str]:
    """Return the names of a command's own commands, none if it is no group."""
    return sorted(getattr(command, "commands", {}))


@pytest.mark.parametrize("name", names_of(WHOLE))
def test_a_command_is_the_same_whether_the_others_are_loaded_or_not(name: str) -> None:
    alone = typer.main.get_command(program(name)).commands[name]  # type: ignore[attr-defined]
    beside_others = WHOLE.commands[name]  # type: ignore[attr-defined]

    assert names_of(alone) == names_of(beside_others)
    assert [each.name for each in alone.params] == [each.name for each in beside_others.params]
    assert len(names_of(typer.main.get_command(program(name)))) < len(names_of(WHOLE))


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["status", "--json"], "status"),
        (["--cluster-id", "topics", "brokers", "list"], "brokers"),
        (["--cluster-id=topics", "events", "slo"], "events"),
        (["topics", "list", "status"], "topics"),
        (["--version"], ""),
        (["nosuch", "status"], None),
        (["--help"], None),
        ([], None),
    ],
)
def test_the_command_is_the_first_word_that_is_no_options_value(
    arguments: list[str], command: str | None
) -> None:
    assert command_in(arguments) == command


def test_a_run_imports_nothing_of_other_commands() -> None:
    # Given: a run of its own, because this process has imported everything.
    code = (
        "import sys; from nextgen.main import command_in, program; "
        "program(command_in(['status'])); print([n for n in sys.modules if n.startswith(("
        "'nextgen.harness', 'nextgen.cli.data', 'nextgen.cli.topics', 'grpc'))])"
    )

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout == "[]\n"


@pytest.mark.parametrize("columns", [40, PLAIN_HELP_COLUMNS_MAX, PLAIN_HELP_COLUMNS_MAX + 1])
def test_help_cuts_no_option_of_the_program_however_narrow_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    shown = CliRunner().invoke(program(columns=columns), ["status", "--help"]).output

    assert all(each in shown for each in ("--target", "--data-dir", "--wide", "NEXTGEN_DATA_DIR"))
