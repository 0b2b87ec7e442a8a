"""``nextgen chaos``, short: a cluster is broken for a minute, and its history is in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# Continuous integration runs the command itself for three minutes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_a_minute_of_chaos_breaks_no_promise_and_is_valid(tmp_path, capsys):
    command = [sys.executable, "-m", "nextgen", "chaos", "--json"]
    is_root = os.geteuid() == 0
    if not is_root:
        command.append("--allow-missing-faults")
    ended = subprocess.run(
        [*command, "--minutes", "1", "--seed", "7", "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )

    result = json.loads(ended.stdout.strip().split("\n")[-1])
    with capsys.disabled():
        print(json.dumps(result))
    assert ended.returncode == 0, ended.stderr
    assert result["valid"]
    assert result["ok"]
    assert result["kills"] >= 1
    assert result["restarts"] == 1
    assert result["partitions"] >= is_root, result["faults_unavailable"]
    changes = (
        "broker_kills",
        "broker_pauses",
        "moves",
        "unloads",
        "drains",
        "splits",
        "merges",
        "renames",
    )
    assert all(result[name] >= 1 for name in changes), result
    assert result["acked"] > 0
    broken = ("lost", "phantom", "violations", "owner_overlaps", "watch_errors")
    assert {name: result[name] for name in broken} == dict.fromkeys(broken, 0)
