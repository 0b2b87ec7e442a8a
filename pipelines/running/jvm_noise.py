"""Keeps from the terminal what a JVM and Spark say at every start, and nothing else."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NOISE = re.compile(
    rb"WARNING: Using incubator modules|Using Spark's default log4j profile"
    rb"|Setting default log level to|To adjust logging level use|Setting Spark log level to"
    rb"|.* WARN NativeCodeLoader: "
)
"""Beginnings of lines that say nothing about the job."""

_STDERR = 2


@contextmanager
def without_noise() -> Iterator[None]:
    """Have processes that start in the block write to stderr without ``NOISE``.

    They go on doing so after the block; all other lines arrive as they were written.
    """
    sys.stderr.flush()
    reading, writing = os.pipe()
    present = os.dup(_STDERR)
    os.dup2(writing, _STDERR)
    os.close(writing)
    threading.Thread(target=_forward, args=(reading, os.dup(present)), daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(present, _STDERR)
        os.close(present)


def _forward(reading: int, to: int) -> None:
    with open(reading, "rb", buffering=0) as source, open(to, "wb", buffering=0) as terminal:
        rest = b""
        while data := source.read(65_536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if not NOISE.match(line):
                    terminal.write(line + b"\n")
        if rest:
            terminal.write(rest)
