"""Commands beside one another: the first, and others in the processor time that it leaves.

    python3 scripts/beside.py COMMAND OTHER ...

Each is a line for the shell. What the first one prints is shown at once. What another prints is
kept until those before it have ended, and shown from its beginning: no line is of two commands.
The others have a lower priority, so that the first one's timings change little.

All are run to their ends, whichever fails. Exit 1 if one of them failed; the last lines name it.
An interrupt, or SIGTERM, interrupts all of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO

NICENESS = 5
"""Of the others. Where both want one processor, they get a quarter of it: enough for the time
limits of tests, and little enough to leave what the first command measures as it is."""

LOOK_S = 0.2
"""Between two looks at what another command has printed meanwhile."""

ENDING_S_MAX = 60
"""After an interrupt: runs of tests take their clusters down."""

INTERRUPTED = 130


class Command:
    """A command that runs, in a process group of its own."""

    def __init__(self, line: str, printed: IO[bytes] | None) -> None:
        """Start it; ``printed`` is the file for its output unless it is the first."""
        self.line = line
        self._printed = printed
        nice = () if printed is None else ("nice", f"--adjustment={NICENESS}")
        self._process = subprocess.Popen(
            [*nice, "/bin/sh", "-c", line],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=None if printed is None else subprocess.STDOUT,
            process_group=0,
        )

    def ends_well(self) -> bool:
        """Show what it prints, wait until it ends, and return whether it ended without a fault."""
        if self._printed is not None:
            _write(f"\n=== {self.line}\n".encode())
            self._show(self._printed.fileno())
        return self._process.wait() == 0

    def _show(self, printed: int) -> None:
        shown = 0
        has_ended = False
        while not has_ended:
            has_ended = self._process.poll() is not None
            # At a position of its own: that of the file is where the command goes on.
            while content := os.pread(printed, 1 << 16, shown):
                shown += len(content)
                _write(content)
            if not has_ended:
                time.sleep(LOOK_S)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the command and all that it started, as a terminal does."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def end(self) -> None:
        """Wait for the end of an interrupted command, which is killed if it goes on."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_S_MAX)
        self.send(signal.SIGKILL)


def _write(content: bytes) -> None:
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def main(lines: Sequence[str]) -> int:
    """Run the commands; return the exit code."""
    # A shell lets what it runs in its background ignore the first; by default no command would
    # hear of the second.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(tempfile.TemporaryFile()) for _ in lines[1:]]
        return _run([Command(*each) for each in zip(lines, [None, *files], strict=True)])


def _run(commands: Sequence[Command]) -> int:
    try:
        failed = [command.line for command in commands if not command.ends_well()]
    except KeyboardInterrupt:
        for command in commands:
            command.send(signal.SIGINT)
        for command in commands:
            command.end()
        return INTERRUPTED
    for line in failed:
        sys.stderr.write(f"=== failed: {line}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
