"""``nextgen pipeline backtest`` of a real cluster whose shard leaders are killed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.spark]

KILLS = 4


def test_what_a_cluster_did_by_itself_while_leaders_died_follows_from_its_log(tmp_path, capsys):
    command = [sys.executable, "-m", "benchmarks.pipelines.backtest_run", "--kills", str(KILLS)]
    ended = subprocess.run(
        [*command, "--keep", str(tmp_path)], capture_output=True, text=True, check=False
    )

    result = json.loads(ended.stdout.strip().split("\n")[-1])
    with capsys.disabled():
        print(json.dumps(result))
    assert ended.returncode == 0, ended.stderr
    assert result["differences"] == 0
    assert result["actions"] == result["actions_reproduced"] >= 10
    assert result["kills"] == KILLS
    assert sum(result["terms"].values()) >= len(result["terms"]) + 3, "leaders were lost"
