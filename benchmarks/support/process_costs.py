"""What processes use, read from /proc, and the calls to the system that ``perf`` counts of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import psutil

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PERF_EVENTS = {
    "all": "raw_syscalls:sys_enter",
    "futex": "syscalls:sys_enter_futex",
    "fdatasync": "syscalls:sys_enter_fdatasync",
    "fsync": "syscalls:sys_enter_fsync",
    "sendmsg": "syscalls:sys_enter_sendmsg",
    "sendto": "syscalls:sys_enter_sendto",
    "write": "syscalls:sys_enter_write",
    "pwrite64": "syscalls:sys_enter_pwrite64",
    "epoll_wait": "syscalls:sys_enter_epoll_wait",
}
"""Calls to the system by name, as ``perf stat`` counts them."""

_PERF_STARTS_S = 0.5


class NoCounts(Exception):
    """Why calls to the system cannot be counted here."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process used: seconds of the processor, and how often its threads gave it up."""

    user_s: float = 0.0
    system_s: float = 0.0
    waits: float = 0.0
    """Switches to another thread because this one had to wait: voluntary ones."""

    preemptions: float = 0.0
    """Switches that the system forced: involuntary ones."""

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Usage) -> Usage:
        return self + other * -1

    def __mul__(self, factor: float) -> Usage:
        return Usage(*(value * factor for value in astuple(self)))


class Processes:
    """Named processes with the children that they have at the beginning."""

    def __init__(self, process_ids: Mapping[str, int]) -> None:
        self.trees = {
            name: [process_id, *(each.pid for each in psutil.Process(process_id).children(True))]
            for name, process_id in process_ids.items()
        }

    def look(self) -> dict[str, Usage]:
        """Return what each has used since its start; switches only of threads that still run."""
        return {
            name: sum((self._usage(one) for one in tree), start=Usage())
            for name, tree in self.trees.items()
        }

    def _usage(self, process_id: int) -> Usage:
        folder = Path(f"/proc/{process_id}")
        # The name in parentheses may hold anything.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        waits, preemptions = 0, 0
        for task in (folder / "task").iterdir():
            try:
                status = (task / "status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            lines = dict(line.split(":\t") for line in status.splitlines() if "ctxt" in line)
            waits += int(lines["voluntary_ctxt_switches"])
            preemptions += int(lines["nonvoluntary_ctxt_switches"])
        return Usage(
            int(fields[11]) / _TICKS_PER_SECOND,
            int(fields[12]) / _TICKS_PER_SECOND,
            waits,
            preemptions,
        )


@dataclass(frozen=True, slots=True)
class SystemCalls:
    """Calls to the system by group of processes and name."""

    seconds: float
    counts: Mapping[str, Mapping[str, int]]

    def of_one(self, count: int, idle: SystemCalls) -> dict[str, dict[str, float]]:
        """Return the calls for one of ``count`` operations, without those of an idle time."""
        idle_share = self.seconds / idle.seconds
        found = {
            group: {
                name: max(0.0, calls - idle.counts[group].get(name, 0) * idle_share) / count
                for name, calls in named.items()
            }
            for group, named in self.counts.items()
        }
        found["all processes"] = {
            name: sum(named.get(name, 0.0) for named in found.values()) for name in PERF_EVENTS
        }
        return {
            group: {name: round(calls, 2) for name, calls in named.items()}
            for group, named in found.items()
        }


async def system_calls(groups: Mapping[str, Sequence[int]], work: Awaitable[None]) -> SystemCalls:
    """Await ``work`` and return the calls of each group of processes meanwhile.

    Counting costs the processes time.

    Raises:
        NoCounts: There is no ``perf``, or it may not count.
    """
    if shutil.which("perf") is None:
        raise NoCounts("there is no perf in PATH")
    began = time.monotonic()
    counters = {group: await _start_perf(tree) for group, tree in groups.items()}
    try:
        # Nothing says when perf has attached to all threads.
        await asyncio.sleep(_PERF_STARTS_S)
        await work
    finally:
        for counter in counters.values():
            if counter.returncode is None:
                counter.send_signal(signal.SIGINT)
        printed = {group: (await one.communicate())[1] for group, one in counters.items()}
    return SystemCalls(
        time.monotonic() - began,
        {group: _counts_in(text.decode()) for group, text in printed.items()},
    )


async def _start_perf(process_ids: Sequence[int]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *("perf", "stat", "--field-separator", ",", "--event", ",".join(PERF_EVENTS.values())),
        *("--pid", ",".join(map(str, process_ids))),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )


def _counts_in(printed: str) -> dict[str, int]:
    names = {event: name for name, event in PERF_EVENTS.items()}
    found = {}
    for line in printed.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[2] in names and fields[0].isdigit():
            found[names[fields[2]]] = int(fields[0])
    if not found:
        raise NoCounts(f"perf counts nothing: {printed.strip()[:200]!r}")
    return found
