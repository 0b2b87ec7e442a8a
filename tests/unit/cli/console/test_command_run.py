"""How a command that gets no answer ends, and how one that is left alone does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest
import typer

from nextgen.cli.console import command_run
from nextgen.cli.console.command_run import run_command, run_until_interrupted
from nextgen.runtime.lifecycle.exit_code import ExitCode


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_run, "LOOK_MS", 0)
    monkeypatch.setattr(command_run, "QUIET_MS_MAX", 0)
    monkeypatch.setattr(command_run, "has_printed", lambda: False)
    monkeypatch.setattr(command_run, "called_addresses", lambda: ("127.0.0.1:17003",))


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_a_command_at_a_port_of_another_protocol_ends_with_the_right_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_run, "wrong_port", lambda *_asked: "use 127.0.0.1:17000")

    with pytest.raises(typer.Exit) as ended:
        run_command(for_ever())

    assert ended.value.exit_code == ExitCode.CANNOT_RUN
    assert capsys.readouterr().err == "nextgen: use 127.0.0.1:17000\n"


def test_a_command_that_waits_says_so_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given: a command whose answer comes when the terminal shows that it waits.
    said: list[str] = []
    has_said = asyncio.Event()

    def show(sentence: str) -> None:
        said.append(sentence)
        has_said.set()

    async def work() -> str:
        await has_said.wait()
        return "an answer"

    monkeypatch.setattr(command_run, "wrong_port", lambda *_asked: None)
    monkeypatch.setattr(command_run, "print_error", show)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)

    # When: it runs. Then: it ends with the answer, and has named what it waited for.
    assert run_command(work()) == "an answer"
    assert said == ["nothing yet from 127.0.0.1:17003: waiting; Ctrl-C ends it"]


async def interrupt_this() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    await for_ever()


def test_an_interrupt_ends_a_command_as_interrupted_and_a_watch_as_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command_run, "wrong_port", lambda *_asked: None)

    with pytest.raises(typer.Exit) as ended:
        run_command(interrupt_this())
    run_until_interrupted(interrupt_this())

    assert ended.value.exit_code == ExitCode.INTERRUPTED


@pytest.mark.parametrize("ending", [SystemExit(1), typer.Exit(4)])
def test_the_exit_code_of_a_command_is_the_programs_without_further_output(
    ending: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise ending

    with pytest.raises(type(ending)) as ended:
        run_command(work())

    assert ended.value is ending
    assert capsys.readouterr().err == ""
