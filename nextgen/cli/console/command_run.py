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

QUIET_MS_MAX = 1_000
"""Time for an answer before a command shows what it waits for."""

T = TypeVar("T")


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; see ``nextgen.runtime.lifecycle.exit_code`` for how it ends.

    If it takes longer than ``QUIET_MS_MAX``, the terminal shows what it waits for, and an address
    of the command line that speaks another protocol than gRPC ends it.
    """
    return run_blocking(lambda: asyncio.run(_watched(work)))


async def _watched(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=QUIET_MS_MAX / 1_000)
        if not task.done():
            await _look_at(called_addresses(), task)
        return await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def _look_at(addresses: Sequence[str], task: asyncio.Future[Any]) -> None:
    """Show that the command waits for these discovery nodes.

    Raises:
        RefusesToStart: One of them is no port for gRPC.
    """
    if not addresses or has_printed():
        return
    wrong = await asyncio.to_thread(wrong_port, addresses, Protocol.GRPC, local_plan_or_none())
    if task.done() or has_printed():
        return
    if wrong:
        raise RefusesToStart(wrong)
    if sys.stderr.isatty():
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
