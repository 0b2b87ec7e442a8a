"""Starting a process that must not run, and proving that it touched nothing."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from nextgen.cli.local.cluster import child_environment
from nextgen.cli.local.plan import MODULES, ClusterPlan
from nextgen.runtime.security.cluster_secret import SECRET_FILE, make_cluster_secret
from tests.support.processes.fork_server import run_warm

REFUSED = 78
ENDS_S_MAX = 90

LOCK = "lock"
"""Holds the id of the process that used the directory last: a try writes its own."""


def start_refused(
    plan: ClusterPlan,
    node_id: str,
    data_dir: Path,
    *python_flags: str,
    changed: Mapping[str, str] | None = None,
) -> str:
    """Start a process of the plan, which must refuse, and return what it said.

    ``changed`` replaces flags or adds them.
    """
    node = plan.node(node_id)
    data_dir.mkdir(parents=True, exist_ok=True)
    make_cluster_secret(data_dir / SECRET_FILE)
    parts = plan.arguments(node, data_dir)
    flags = dict(zip(parts[::2], parts[1::2], strict=True)) | dict(changed or {})
    arguments = [part for flag in flags.items() for part in flag]
    environment = child_environment(lifeline=False)
    if python_flags:
        ended = subprocess.run(
            [sys.executable, *python_flags, "-m", MODULES[node.kind], *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ENDS_S_MAX,
            check=False,
        )
    else:
        ended = run_warm(
            MODULES[node.kind], arguments, environment=environment, timeout_s=ENDS_S_MAX
        )
    assert ended.returncode == REFUSED, (ended.returncode, ended.stderr)
    assert "Traceback" not in ended.stderr
    return ended.stderr.strip().splitlines()[-1]


def tree(directory: Path, *, without: str = "") -> dict[str, str]:
    """Return every file below ``directory`` with a digest of its content and its times."""
    return {
        str(path.relative_to(directory)): _digest(path)
        for path in sorted(directory.rglob("*"))
        if path.name != without
    }


def _digest(path: Path) -> str:
    status = os.stat(path)
    if path.is_dir():
        return "directory"
    content = hashlib.blake2b(path.read_bytes()).hexdigest()
    return f"{content} {status.st_mtime_ns} {status.st_mode:o}"
