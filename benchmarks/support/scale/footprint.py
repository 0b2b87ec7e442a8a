"""What shard nodes take: bytes on disk by kind of file, memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import psutil

_MIB = 2**20

KINDS = ("view", "view_wal", "snapshot", "journal", "other")


def disk_bytes(nodes: list[Path]) -> dict[str, int]:
    """Return the bytes of all replicas below the data directories of ``nodes``, by kind.

    What the file system has allocated, which preallocated journals and indexes of pages are part
    of, not what files say of their length.
    """
    found = Counter(dict.fromkeys(KINDS, 0))
    for node in nodes:
        for path in node.glob("group-*/**/*"):
            try:
                if path.is_file():
                    found[_kind_of(path)] += path.stat().st_blocks * 512
            except FileNotFoundError:
                continue  # Removed a moment ago.
    return dict(found)


def per_topic(found: dict[str, int], topics: int, replicas: int) -> dict[str, float]:
    """Return the bytes of a topic in one replica, by kind and in all."""
    shares = {kind: round(size / topics / replicas, 1) for kind, size in found.items()}
    return {**shares, "all": round(sum(found.values()) / topics / replicas, 1)}


def memory_mib(process_ids: dict[str, int]) -> dict[str, dict[str, float]]:
    """Return resident and proportional memory of processes, by node."""
    found = {}
    for node_id, process_id in process_ids.items():
        full = psutil.Process(process_id).memory_full_info()
        found[node_id] = {"rss": round(full.rss / _MIB, 1), "pss": round(full.pss / _MIB, 1)}
    return found


def _kind_of(path: Path) -> str:
    folder = path.parent.name
    if folder == "view":
        return "view" if path.suffix == ".sqlite" else "view_wal"
    if folder == "snapshots":
        return "snapshot"
    return "journal" if folder == "journal" else "other"
