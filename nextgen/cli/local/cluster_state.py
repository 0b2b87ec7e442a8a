"""Records the local cluster that runs in a data directory, for ``down`` and ``status``.

The supervisor's process id may be reused by another process before it is read, so the record has
the process's start time too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from nextgen.cli.local.plan import write_json
from nextgen.kernel.input.json_fields import parse_json

STATE_FILE = "running.json"


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """A supervisor that is alive, and the processes it started."""

    supervisor_pid: int
    node_pids: Mapping[str, int]


def write_state(data_dir: Path, node_pids: Mapping[str, int]) -> None:
    """Record that this process supervises the cluster in ``data_dir``."""
    write_json(
        data_dir / STATE_FILE,
        {
            "supervisor_pid": os.getpid(),
            "supervisor_born": psutil.Process().create_time(),
            "node_pids": dict(node_pids),
        },
    )


def remove_state(data_dir: Path) -> None:
    """Record that nothing runs there. Harmless when nothing was recorded."""
    with contextlib.suppress(FileNotFoundError):
        (data_dir / STATE_FILE).unlink()


def read_state(data_dir: Path) -> RunningCluster | None:
    """Return what runs in ``data_dir``, None if nothing does."""
    try:
        content = parse_json((data_dir / STATE_FILE).read_text(encoding="utf-8"))
        process = psutil.Process(content["supervisor_pid"])
        if abs(process.create_time() - content["supervisor_born"]) > 1:
            return None
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return RunningCluster(process.pid, content["node_pids"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, psutil.Error):
        return None
