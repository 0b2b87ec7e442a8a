"""Processor time of a few lines, whatever else the process of the tests holds."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


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
