"""A child process ends with its parent, without either of them polling.

A parent that starts a child with ``NEXTGEN_LIFELINE=stdin`` keeps the write end of the child's
standard input open and never writes to it. When the parent ends, however it ends, the kernel
closes that end and the child reads end-of-file. On Linux the kernel also sends SIGTERM at the
parent's death, a second guard in case another process inherited the write end.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import stat
import sys
from collections.abc import Callable

from nextgen.kernel.errors import RefusesToStart

LIFELINE_VARIABLE = "NEXTGEN_LIFELINE"
LIFELINE_STDIN = "stdin"

_PR_SET_PDEATHSIG = 1


class Lifeline:
    """Watches standard input and calls ``on_parent_gone`` once, on the loop, at its end."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def close(self) -> None:
        """Stop watching; ``on_parent_gone`` is not called any more."""
        self._transport.close()


async def hold_lifeline(on_parent_gone: Callable[[], None]) -> Lifeline | None:
    """Start watching the parent if the environment sets a lifeline, else return None.

    Raises:
        RefusesToStart: The environment sets a lifeline and standard input cannot be one.
    """
    wanted = os.environ.get(LIFELINE_VARIABLE)
    if not wanted:
        return None
    if wanted != LIFELINE_STDIN:
        raise RefusesToStart(f"{LIFELINE_VARIABLE} is {wanted!r}, only {LIFELINE_STDIN!r} is known")
    mode = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        raise RefusesToStart(
            f"{LIFELINE_VARIABLE} is set but standard input is not a pipe: "
            "start this process from a parent that keeps a pipe to it open, or unset the variable"
        )
    _signal_at_parent_death()
    pipe = os.fdopen(os.dup(0), "rb", buffering=0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: _EndOfFile(on_parent_gone), pipe)
    return Lifeline(transport)


class _EndOfFile(asyncio.Protocol):
    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end

    def eof_received(self) -> bool:
        self._on_end()
        return False


def _signal_at_parent_death() -> None:
    if not sys.platform.startswith("linux"):
        return
    # The return value is ignored: this is only the second guard, after the pipe.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
