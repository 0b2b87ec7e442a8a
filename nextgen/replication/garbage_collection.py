"""Garbage collector settings for the processes of this project."""

from __future__ import annotations

import gc

YOUNG_THRESHOLD = 200_000
"""Allocations before the youngest generation is collected: pauses are rare, and short because
reference counts free most entries and messages at once. benchmarks/engine/raft_commit.py."""

MIDDLE_THRESHOLD = 50
OLD_THRESHOLD = 1_000


def tune_garbage_collector() -> None:
    """Exclude all live objects from collection, and make collections rarer.

    Call once, after everything is imported and wired, before the first request.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_THRESHOLD, MIDDLE_THRESHOLD, OLD_THRESHOLD)
