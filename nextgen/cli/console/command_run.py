"""Runs a command: expected errors become a sentence and an exit code."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import typer

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.routing.names import InvalidName
from nextgen.runtime.lifecycle.exit_code import CheckFailed, ExitCode, code_of, print_error
from nextgen.runtime.telemetry.logs import LEVEL_VARIABLE, configure_logging

T = TypeVar("T")


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; see ``nextgen.runtime.lifecycle.exit_code`` for how it ends."""
    return run_blocking(lambda: asyncio.run(work))


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
