"""``nextgen pipeline rebuild --verify``, short: a cluster that chaos ran on, and its history."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spark]

EVENTS_MIN = 5_000


def test_what_is_rebuilt_after_a_minute_of_chaos_is_what_the_cluster_has(tmp_path, capsys):
    command = [sys.executable, "-m", "nextgen", "pipeline", "rebuild", "--verify", "--json"]
    command += ["--minutes", "1", "--seed", "7", "--events-min", str(EVENTS_MIN)]
    ended = subprocess.run(
        [*command, "--data-dir", str(tmp_path)], capture_output=True, text=True, check=False
    )

    result = json.loads(ended.stdout.strip().split("\n")[-1])
    with capsys.disabled():
        print(json.dumps(result))
    assert ended.returncode == 0, ended.stderr
    assert result["ok"]
    assert result["verified"]
    assert result["differences"] == 0
    assert result["events"] >= EVENTS_MIN
    assert result["live_items"] > 1_000
    assert result["rows_read"] == result["rows_in"]
    assert result["chaos"]["ok"]
    assert result["chaos"]["kills"] >= 1
