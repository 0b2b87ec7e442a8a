"""Runs a command: expected errors become a sentence and an exit code."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import typer

from nextgen.cli.console.options import called_addresses, local_plan_or_none
from nextgen.cli.console.output import has_printed
from nextgen.cli.console.protocol_check import Protocol, wrong_port
from nextgen.kernel.errors import MetadataError, RefusesToStart
from nextgen.kernel.routing.names import InvalidName
from nextgen.runtime.lifecycle.exit_code import CheckFailed, ExitCode, code_of, print_error
from nextgen.runtime.telemetry.logs import LEVEL_VARIABLE, configure_logging
from nextgen.tasks.background import start
from nextgen.tasks.interrupts import run

LOOK_MS = 200
"""Time for an answer before a command looks whether the port speaks its protocol."""

QUIET_MS_MAX = 1_000
"""Time for an answer before a command shows what it waits for."""

T = TypeVar("T")


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; see ``nextgen.runtime.lifecycle.exit_code`` for how it ends.

    If nothing is printed within ``LOOK_MS``, an address of the command line that speaks another
    protocol than gRPC ends it; within ``QUIET_MS_MAX``, the terminal shows what it waits for.
    """
    return run_blocking(lambda: run(_watched(work)))


def run_until_interrupted(work: Coroutine[Any, Any, None]) -> None:
    """Do as ``run_command`` for work whose normal end is an interrupt: it ends as done."""
    try:
        run_command(work)
    except typer.Exit as ending:
        if ending.exit_code != ExitCode.INTERRUPTED:
            raise


async def _watched(work: Coroutine[Any, Any, T]) -> T:
    # The command stays the loop's main task: an exit or an interrupt of it ends the loop.
    command = asyncio.current_task()
    assert command is not None, "it runs on an event loop"
    wrong: list[str] = []

    async def look() -> None:
        await asyncio.sleep(LOOK_MS / 1_000)
        wrong.extend(await _wrong_ports(called_addresses()))
        if wrong:
            command.cancel()
            return
        await asyncio.sleep((QUIET_MS_MAX - LOOK_MS) / 1_000)
        _show_wait(called_addresses())

    watching = start("quiet_watch", look())
    try:
        return await work
    except asyncio.CancelledError:
        if not wrong:
            raise
        raise RefusesToStart(wrong[0]) from None
    finally:
        watching.cancel()


async def _wrong_ports(addresses: Sequence[str]) -> list[str]:
    """Return a sentence if one of them is no port for gRPC; nothing if the command has printed."""
    if not addresses or has_printed():
        return []
    wrong = await asyncio.to_thread(wrong_port, addresses, Protocol.GRPC, local_plan_or_none())
    return [wrong] if wrong and not has_printed() else []


def _show_wait(addresses: Sequence[str]) -> None:
    """Show on a terminal that the command waits, unless it has printed something."""
    if addresses and not has_printed() and sys.stderr.isatty():
        print_error(f"nothing yet from {', '.join(addresses)}: waiting; Ctrl-C ends it")


def run_blocking(work: Callable[[], T]) -> T:
    """Run a command that needs no event loop; errors as with ``run_command``."""
    configure_logging(level=os.environ.get(LEVEL_VARIABLE) or "error")
    try:
        return work()
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except (MetadataError, InvalidName, CheckFailed) as error:
        print_error(str(error))
        raise typer.Exit(code_of(error)) from None
