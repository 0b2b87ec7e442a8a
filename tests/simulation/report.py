"""The report of one seed of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["engine", "cluster"]
"""``engine``: one Raft group. ``cluster``: shards, cluster manager, brokers and discovery."""

KINDS: tuple[Kind, ...] = ("engine", "cluster")


@dataclass(frozen=True, slots=True)
class SeedReport:
    """One run. Equal seeds of equal code give equal reports, ``trace_hash`` included."""

    seed: int
    kind: Kind
    steps: int  # Things that happened: messages delivered, timers, ends of disk operations.
    virtual_seconds: float
    faults: Mapping[str, int]  # How often each kind of fault was injected.
    cells: Mapping[tuple[str, str], int]  # The same by (fault, state of what it hit).
    trace_hash: str  # Of everything that happened, in order.
    failure: str | None  # The invariant that broke, as a sentence; None if all held.
