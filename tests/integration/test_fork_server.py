"""Processes that start warm are what cold ones are: output, exit codes, signals, lifelines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from nextgen.runtime.lifecycle.exit_code import ExitCode
from tests.integration.cluster_manager.managers import Managers
from tests.support.processes.fork_server import IS_AVAILABLE, ROOT, run_warm, start_warm

pytestmark = pytest.mark.skipif(not IS_AVAILABLE, reason="processes fork on Linux only")

ENDS_S_MAX = 60

OWNER = """
import os, sys
from tests.support.processes.fork_server import start_warm
environment = {**os.environ, "NEXTGEN_LIFELINE": "stdin"}
process = start_warm("cluster_manager", sys.argv[1:], environment=environment)
print(process.pid, flush=True)
sys.stdin.read()
"""


def arguments_in(directory: Path) -> list[str]:
    managers = Managers(directory, 1)
    return managers.arguments(managers.node_ids[0])


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "NEXTGEN_LIFELINE": "stdin", **more}


@pytest.mark.parametrize("arguments", [["events", "--help"], ["events"], ["events", "many"]])
def test_warm_command_prints_and_returns_what_a_cold_one_does(arguments: list[str]) -> None:
    warm = run_warm("nextgen", arguments, environment=os.environ, timeout_s=ENDS_S_MAX)
    cold = subprocess.run(
        [sys.executable, "-m", "nextgen", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (warm.returncode, warm.stdout) == (cold.returncode, cold.stdout)
    assert bool(warm.stderr) == bool(cold.stderr)


def test_warm_command_has_the_environment_and_the_standard_input_it_is_given(
    tmp_path: Path,
) -> None:
    changed = {**os.environ, "NEXTGEN_DATA_DIR": str(tmp_path / "nobody")}

    ended = run_warm("nextgen", ["status"], environment=changed, timeout_s=ENDS_S_MAX)

    assert ended.returncode == ExitCode.CANNOT_RUN
    assert str(tmp_path / "nobody") in ended.stderr


def test_warm_process_dies_of_the_signals_that_are_sent_to_it(tmp_path: Path) -> None:
    process = start_warm("cluster_manager", arguments_in(tmp_path), environment=environment())
    assert process.stdin is not None
    assert process.poll() is None
    assert psutil.Process(process.pid).ppid() != os.getpid()

    process.send_signal(signal.SIGKILL)

    assert process.wait(ENDS_S_MAX) == -signal.SIGKILL
    assert process.poll() == -signal.SIGKILL
    assert not psutil.pid_exists(process.pid)
    process.stdin.close()


def test_warm_process_ends_with_its_lifeline(tmp_path: Path) -> None:
    process = start_warm("cluster_manager", arguments_in(tmp_path), environment=environment())
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    assert process.stdin is not None

    process.stdin.close()

    assert process.wait(ENDS_S_MAX) in (0, -signal.SIGTERM)


def test_warm_processes_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, *arguments_in(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        process = psutil.Process(int(owner.stdout.readline()))

        owner.kill()

    assert psutil.wait_procs([process], timeout=ENDS_S_MAX)[1] == []
