"""Commands beside one another: each is seen whole, and no failure is hidden by another's end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "beside.py"
ENDS_S_MAX = 60


def beside(*lines: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *lines]
    return subprocess.run(command, capture_output=True, text=True, timeout=ENDS_S_MAX, check=False)


def test_commands_run_at_one_time_and_each_output_is_whole(tmp_path: Path):
    """Each waits for the other: one behind the other they would never end."""
    wait = "touch {0}; echo {0} begins; until test -e {1}; do sleep 0.01; done; echo {0} ends"

    ended = beside(*(f"cd {tmp_path}; {wait.format(*names)}" for names in ("ab", "ba")))

    assert ended.returncode == 0, ended.stderr
    printed = [line for line in ended.stdout.splitlines() if line and line[:3] != "==="]
    assert printed == ["a begins", "a ends", "b begins", "b ends"]


def test_others_are_run_to_their_ends_at_a_lower_priority():
    ended = beside("false", "nice", "sleep 0.1; echo to the end >&2; exit 3", "true")

    niceness = os.nice(0) + 5
    assert ended.stdout.split("\n=== ") == [
        "",
        f"nice\n{min(niceness, 19)}\n",
        "sleep 0.1; echo to the end >&2; exit 3\nto the end\n",
        "true\n",
    ]
    assert ended.stderr.splitlines() == [
        "=== failed: false",
        "=== failed: sleep 0.1; echo to the end >&2; exit 3",
    ]
    assert ended.returncode == 1


def test_a_killed_command_has_failed():
    ended = beside("true", "kill -9 $$")

    assert (ended.returncode, ended.stderr) == (1, "=== failed: kill -9 $$\n")


def test_what_is_interrupted_ends_all_commands(tmp_path: Path):
    waits = "echo $$ > {}; trap 'touch {}; exit' INT; while true; do sleep 0.05; done"
    paths = [tmp_path / name for name in ("first", "second")]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *(waits.format(path, f"{path}.ended") for path in paths)]
    )
    until = time.monotonic() + ENDS_S_MAX
    while not all(path.exists() and path.read_text() for path in paths):
        assert time.monotonic() < until
        time.sleep(0.01)

    process.send_signal(signal.SIGTERM)

    assert process.wait(ENDS_S_MAX) == 130
    for path in paths:
        assert Path(f"{path}.ended").exists()
        assert not Path(f"/proc/{path.read_text().strip()}").exists()
