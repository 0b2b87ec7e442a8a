"""Memory of commands that wait, in a process of their own: what waits, and what is left of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

ROUND_S_MAX = 120
WAITING_MB_MAX = 30
"""Twenty commands of 5 MB wait; read into memory each would take that and more."""
GROWTH_MB_MAX = 4
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "1048576"}
"""Freed commands go back to the system at once. By itself glibc's threshold rises to the size of
what was freed, and up to twice as much stays resident, a different part of it at each run."""


@pytest.mark.parametrize("work", ["waiting_producers", "opening_consumers", "waiting_lookups"])
def test_a_command_is_not_kept_while_it_waits_nor_behind_its_connection(work: str):
    measured = subprocess.run(
        [sys.executable, "-m", "tests.support.costs.memory_rounds", work],
        check=True,
        capture_output=True,
        timeout=ROUND_S_MAX,
        env=os.environ | ALLOCATOR,
    )

    rounds = json.loads(measured.stdout.splitlines()[-1])
    before, first, *_, last = rounds["after"]
    assert max(rounds["high"]) - before < WAITING_MB_MAX
    assert last - first < GROWTH_MB_MAX
