"""How a program run by hand ends: its exit code and, on stderr, one sentence.

0   done
1   refused by the rules (no such topic, exists already, ...)
2   wrong usage of the command line
3   no answer: the cluster cannot be reached, or not in time
4   a check failed: something acknowledged is lost, an answer was wrong, counts disagree
70  the program is broken (with a traceback: please report it)
78  it cannot run like this (port taken, wrong data directory, no cluster secret), nothing was
    touched
130 interrupted
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from enum import IntEnum

from nextgen.kernel.errors import (
    Forbidden,
    InvalidRequest,
    PositionAhead,
    PositionCompacted,
    Refused,
    RefusesToStart,
    Unauthenticated,
)
from nextgen.kernel.input.printable import printable
from nextgen.kernel.input.short_text import shortened
from nextgen.kernel.limits.cluster import ERROR_LINE_CHARACTERS_MAX
from nextgen.kernel.routing.names import InvalidName


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
    """The program's check failed; the message is one sentence."""


def run_program(program: Callable[[], object]) -> None:
    """Run a whole command line. An unexpected exception ends it with a traceback, as ``BROKEN``."""
    try:
        program()
    except Exception:
        traceback.print_exc()
        sys.exit(ExitCode.BROKEN)


def code_of(error: Exception) -> ExitCode:
    """Return the exit code that an expected error ends a program with."""
    match error:
        case RefusesToStart() | Unauthenticated():
            return ExitCode.CANNOT_RUN
        case Refused() | Forbidden() | InvalidName() | PositionAhead() | PositionCompacted():
            return ExitCode.REFUSED
        case InvalidRequest():
            return ExitCode.USAGE
        case CheckFailed():
            return ExitCode.CHECK_FAILED
    return ExitCode.NO_ANSWER


def print_error(sentence: str) -> None:
    """Write one sentence to stderr: on one line, without terminal control characters."""
    line = printable(" ".join(sentence.split()))
    sys.stderr.write(f"nextgen: {shortened(line, ERROR_LINE_CHARACTERS_MAX)}\n")
