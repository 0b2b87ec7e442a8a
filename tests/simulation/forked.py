"""Work in a child of this process: what it changes, and what it breaks, is gone with it.

A fork has everything imported that this process has. It costs milliseconds where a new interpreter
costs seconds.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PIECE_BYTES = 64 * 1024
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a child reported, in order, and whether it came to its end."""

    reports: list[Any]
    is_complete: bool
    """False if it was killed because its time was over, or died."""


def run_forked(work: Callable[[Callable[[object], None]], None], *, seconds_max: float) -> Outcome:
    """Run ``work`` in a forked child; what it passes to its argument is what is reported.

    What is reported has to be picklable. An exception of ``work`` leaves the outcome incomplete.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(work, reading, writing)
    os.close(writing)
    try:
        content = _read_until(reading, time.monotonic() + seconds_max)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)  # It may be dead already: nobody has waited for it yet.
        os.waitpid(child, 0)
    reports = _parsed(content)
    is_complete = bool(reports) and reports[-1] is None
    return Outcome(reports[:-1] if is_complete else reports, is_complete)


def _be_child(work: Callable[[Callable[[object], None]], None], reading: int, writing: int) -> None:
    def report(what: object) -> None:
        content = pickle.dumps(what)
        _write_all(writing, len(content).to_bytes(_LENGTH_BYTES, "big") + content)

    try:
        os.close(reading)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        work(report)
        report(None)
    finally:
        # Nothing of the parent's may run here: no exit handlers, no buffers of its files.
        os._exit(0)


def _write_all(handle: int, content: bytes) -> None:
    while content:
        content = content[os.write(handle, content) :]


def _read_until(handle: int, deadline_s: float) -> bytes:
    content = bytearray()
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not select.select([handle], [], [], left_s)[0]:
            return bytes(content)
        piece = os.read(handle, _PIECE_BYTES)
        if not piece:
            return bytes(content)
        content += piece


def _parsed(content: bytes) -> list[Any]:
    reports: list[Any] = []
    offset = 0
    while offset + _LENGTH_BYTES <= len(content):
        length = int.from_bytes(content[offset : offset + _LENGTH_BYTES], "big")
        offset += _LENGTH_BYTES
        if offset + length > len(content):
            break
        reports.append(pickle.loads(content[offset : offset + length]))
        offset += length
    return reports
