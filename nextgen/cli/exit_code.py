"""How a command ends: its exit code and, on stderr, one sentence.

0   done
1   refused by the rules (no such topic, exists already, ...)
2   wrong usage of the command line
3   no answer: the cluster cannot be reached, or not in time
4   a check failed: something acknowledged is lost, an answer was wrong, counts disagree
70  the program is broken (with a traceback: please report it)
78  it cannot run like this (port taken, wrong data directory), nothing was touched
130 interrupted
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, TypeVar

import typer

from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    PositionAhead,
    PositionCompacted,
    Refused,
    RefusesToStart,
)
from nextgen.kernel.names import InvalidName
from nextgen.runtime.logs import LEVEL_VARIABLE, configure_logging

T = TypeVar("T")


class ExitCode(IntEnum):
    """See the module."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    NO_ANSWER = 3
    CHECK_FAILED = 4
    BROKEN = 70
    CANNOT_RUN = 78
    INTERRUPTED = 130


class CheckFailed(Exception):
    """What the command was to prove did not hold; the message is one sentence."""


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; an error that is expected becomes a sentence and an exit code."""
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


def code_of(error: Exception) -> ExitCode:
    """Return the exit code that an expected error ends a command with."""
    match error:
        case RefusesToStart():
            return ExitCode.CANNOT_RUN
        case Refused() | InvalidName() | PositionAhead() | PositionCompacted():
            return ExitCode.REFUSED
        case InvalidRequest():
            return ExitCode.USAGE
        case CheckFailed():
            return ExitCode.CHECK_FAILED
    return ExitCode.NO_ANSWER


def print_error(sentence: str) -> None:
    """Write one sentence to stderr."""
    sys.stderr.write(f"nextgen: {' '.join(sentence.split())}\n")
