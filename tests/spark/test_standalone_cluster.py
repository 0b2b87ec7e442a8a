"""The same job on a standalone Spark cluster, one of whose executors is killed half way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.spark.rebuilds import (
    in_order,
    random_history,
    rebuilt_rows,
    view_rows,
    view_states,
)
from tests.support.spark.standalone import standalone_cluster, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

JOB_WITHIN_S = 90


async def test_a_rebuild_survives_an_executor_that_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """1. The job has written its first table: it is at work on the next ones.
    2. One of the two executors is killed, with the shuffle files that it holds.
    3. Spark does its tasks again elsewhere; every table is as the shards' views have it.
    """
    history = random_history(seed=3, steps=200)
    export = await history.export(tmp_path / "export", file_rows=60)
    out, draft = tmp_path / "out", tmp_path / ".out.draft"

    with standalone_cluster(tmp_path / "cluster") as cluster:
        command = [sys.executable, "-m", "pipelines", "rebuild", str(export), "--json"]
        command += ["--master", cluster.url, "--heap", "512m", "--out", str(out)]
        with subprocess.Popen(
            command, env=dict(cluster.environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as job:
            try:
                wait_for(
                    lambda: job.poll() is not None or (draft / "tenants" / "_SUCCESS").exists(),
                    JOB_WITHIN_S,
                    "the first table",
                )
                killed = wait_for(cluster.executors, JOB_WITHIN_S, "an executor")[0]
                killed.kill()
                is_mid_job = job.poll() is None
                told, said = job.communicate(timeout=JOB_WITHIN_S)
            finally:
                job.kill()

    assert is_mid_job
    assert job.returncode == 0, said.decode()[-2_000:]
    assert json.loads(told.decode().splitlines()[-1])["ok"]
    assert "Lost executor" in said.decode()
    expected = in_order(view_rows(view_states(history.logs, tmp_path)))
    assert in_order(rebuilt_rows(spark, out)) == expected
