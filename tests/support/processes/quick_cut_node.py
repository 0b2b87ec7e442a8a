"""A shard node whose log is cut after a megabyte.

    python -m tests.support.processes.quick_cut_node

Nothing else differs from ``python -m shards``: a test sees snapshots, cuts and pins without
writing hundreds of megabytes.
"""

from __future__ import annotations

import runpy
from typing import Any

import shards.bootstrap
from nextgen.replication.config import RaftConfig

SEGMENT_BYTES = 256 * 1024
SNAPSHOT_BYTES = 512 * 1024
TAIL_ENTRIES = 8


def quick_cut(**settings: Any) -> RaftConfig:
    settings["snapshot_journal_bytes"] = SNAPSHOT_BYTES
    return RaftConfig(
        **settings, journal_segment_bytes=SEGMENT_BYTES, log_tail_entries=TAIL_ENTRIES
    )


if __name__ == "__main__":
    setattr(shards.bootstrap, "RaftConfig", quick_cut)  # noqa: B010 - no attribute of a type
    runpy.run_module("shards", run_name="__main__")
