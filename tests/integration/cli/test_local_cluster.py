"""Processes of a local cluster: they come back, they stop, and they never outlive their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from nextgen.cli.local.cluster_state import read_state
from nextgen.cli.local.plan import MINIMAL, make_plan_on_free_ports
from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.inbound import LOG_FILE_BYTES_MAX
from nextgen.tasks.timeouts import timeout
from tests.support.processes.local_cluster import LocalCluster, running_cluster

pytestmark = pytest.mark.integration

GONE_TIMEOUT_S = 60
READY_TIMEOUT_S = 60


def start_up(data_dir: Path) -> subprocess.Popen[str]:
    """Start ``nextgen up`` in the foreground and return it once it says that it is ready."""
    port_base = make_plan_on_free_ports(MINIMAL).nodes[0].grpc_port
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "nextgen", "up", "--minimal", "--json"),
            *("--data-dir", str(data_dir), "--port-base", str(port_base)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline(), process.communicate()
    return process


def children_in(data_dir: Path) -> list[psutil.Process]:
    running = read_state(data_dir)
    assert running is not None
    return [psutil.Process(process_id) for process_id in running.node_pids.values()]


def test_up_rotates_logs_restarts_a_killed_process_and_stops_when_interrupted(tmp_path: Path):
    """One cluster for the three: each start takes seconds of processor time."""
    logs = tmp_path / "logs"
    logs.mkdir()
    old = b"x" * LOG_FILE_BYTES_MAX + b"\n"
    (logs / "shard-node-1.log").write_bytes(old)

    process = start_up(tmp_path)

    current, earlier = logs / "shard-node-1.log", logs / "shard-node-1.log.1"
    assert earlier.read_bytes().startswith(old)
    assert 0 < current.stat().st_size + earlier.stat().st_size - len(old) < LOG_FILE_BYTES_MAX
    assert not (logs / "shard-node-1.log.2").exists()
    try:
        check_that_a_killed_broker_is_started_again(process, tmp_path)
        children = children_in(tmp_path)
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=GONE_TIMEOUT_S)
    assert process.returncode == 0, errors
    assert psutil.wait_procs(children, timeout=GONE_TIMEOUT_S)[1] == []
    assert b'"stopping"' in current.read_bytes(), "the process did not write to the new file"


def check_that_a_killed_broker_is_started_again(
    process: subprocess.Popen[str], data_dir: Path
) -> None:
    before = read_state(data_dir)
    assert before is not None
    os.kill(before.node_pids["broker-1"], signal.SIGKILL)

    assert process.stderr is not None
    notice = process.stderr.readline()
    after = asyncio.run(pid_after_restart(data_dir, before.node_pids["broker-1"]))

    assert "broker-1 was killed by SIGKILL" in notice
    assert after != before.node_pids["broker-1"]


def test_no_process_outlives_a_supervisor_that_is_killed(tmp_path: Path):
    process = start_up(tmp_path)
    children = children_in(tmp_path)
    assert len(children) == 4

    process.kill()
    process.communicate()

    _, alive = psutil.wait_procs(children, timeout=GONE_TIMEOUT_S)
    assert alive == []
    assert read_state(tmp_path) is None


async def pid_after_restart(data_dir: Path, before: int) -> int:
    async with timeout(READY_TIMEOUT_S):
        while True:
            running = read_state(data_dir)
            process_id = running.node_pids.get("broker-1", before) if running else before
            if process_id != before:
                return process_id
            await asyncio.sleep(0.1)


async def test_a_killed_node_comes_back_with_its_data(tmp_path: Path):
    async with running_cluster(tmp_path, MINIMAL) as cluster:
        await cluster.kill("shard-node-1")
        running_without = cluster.running
        await cluster.start_node("shard-node-1")
        await cluster.wait_ready()

    assert running_without == ["discovery-1", "cluster-manager-1", "broker-1"]
    assert cluster.running == []


async def test_a_process_that_refuses_to_start_is_quoted(tmp_path: Path):
    async with running_cluster(tmp_path / "first", MINIMAL):
        pass
    plan = make_plan_on_free_ports(MINIMAL, cluster_id="another")
    cluster = LocalCluster(plan, tmp_path / "first")
    try:
        await cluster.start()
        with pytest.raises(RefusesToStart, match="belongs to") as refusal:
            await cluster.wait_ready()
    finally:
        await cluster.stop()

    assert "ended with code 78" in str(refusal.value)
