"""The result of a fault."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.harness.chaos.faults.targets import Target
from nextgen.harness.chaos.schedule import FaultStep


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault that has ended. Times are of the machine's monotonic clock."""

    step: FaultStep
    target: Target
    began_ns: int
    ended_ns: int
    took_hold: bool
    processes: int = 1
    detail: str = ""
