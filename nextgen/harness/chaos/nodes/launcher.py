"""``python -m …chaos.nodes.launcher CONTROL MODULE ARGUMENTS``: a node that chaos can break.

Runs a component's module in this process, after it has replaced

- ``os.fsync`` and ``os.fdatasync``: the journal, term and vote, snapshots' renames, ledgers. SQLite
  calls the system directly and is not slowed; no acknowledgement depends on its fsyncs;
- ``time.time`` and ``time.time_ns``: all wall-clock time that the product reads. The monotonic
  clock, gRPC's own timers and the file system's timestamps are unchanged.

Worker processes of a node (``discovery``) do not use this launcher and keep the true time.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nextgen.harness.chaos.nodes.control_file import ControlFile


def slowed(fsync: Callable[[Any], None], control: ControlFile) -> Callable[[Any], None]:
    """Return ``fsync`` with the delay in the control file at each call."""

    def slow(handle: Any) -> None:
        delay_us = control.fsync_delay_us
        if delay_us:
            control.count_delayed()
            time.sleep(delay_us / 1_000_000)
        fsync(handle)

    return slow


def shifted_ns(clock_ns: Callable[[], int], control: ControlFile) -> Callable[[], int]:
    """Return a clock in nanoseconds with the offset in the control file at each call."""

    def read() -> int:
        offset_ns = control.clock_offset_ns
        if offset_ns:
            control.count_shifted()
        return clock_ns() + offset_ns

    return read


def shifted_s(clock_s: Callable[[], float], control: ControlFile) -> Callable[[], float]:
    """Return a clock in seconds with the offset in the control file at each call."""

    def read() -> float:
        offset_ns = control.clock_offset_ns
        if offset_ns:
            control.count_shifted()
        return clock_s() + offset_ns / 1e9

    return read


def put_between(control: ControlFile) -> None:
    """Replace the functions in this process, for good."""
    for module, name, between in (
        (os, "fsync", slowed),
        (os, "fdatasync", slowed),
        (time, "time_ns", shifted_ns),
        (time, "time", shifted_s),
    ):
        setattr(module, name, between(getattr(module, name), control))


def main() -> None:
    """See the module."""
    _, control_path, module, *arguments = sys.argv
    put_between(ControlFile.open(Path(control_path)))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
