"""Processor time of a few lines, whatever else the process of the tests holds.

with processor_time() as taken:
    work()
assert taken.seconds < 0.1 * slowness()
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

REFERENCE_MS = 20
"""What ``reference_work`` takes with a core of an ordinary server to itself. It was seen to take 19
to 52 ms on one machine in one minute: clocks, caches and a core's sibling thread are part of
processor time."""

REFERENCES = 3


class ProcessorTime:
    """``seconds`` of this thread, once the block is over."""

    seconds = 0.0


@contextmanager
def processor_time() -> Iterator[ProcessorTime]:
    """Measure a block without collections of garbage.

    Behind thousands of tests in one process a collection takes a third of a second, and comes at
    any moment.
    """
    measured = ProcessorTime()
    was_on = gc.isenabled()
    gc.disable()
    began = time.thread_time()
    try:
        yield measured
    finally:
        measured.seconds = time.thread_time() - began
        if was_on:
            gc.enable()


def slowness() -> float:
    """Return how many times as long as on an ordinary server work takes at present, at least 1."""
    return max(1.0, max(reference_work() for _ in range(REFERENCES)) / REFERENCE_MS)


def reference_work() -> float:
    """Do what handlers do, walk bytes, always as much; return its processor time in ms."""
    data = bytes(range(256)) * 1_000
    began_at = time.thread_time()
    total = at = 0
    while at < len(data):
        total += data[at] & 0x7F
        at += 1
    assert total == 1_000 * 2 * sum(range(128))
    return 1_000 * (time.thread_time() - began_at)
