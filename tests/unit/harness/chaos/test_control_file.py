"""The file through which a node is slowed and its clock is set wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nextgen.harness.chaos.nodes.control_file import (
    CONTROL_FILE_BYTES,
    DELAY_MS_MAX,
    OFFSET_MS_MAX,
    ControlFile,
)
from nextgen.harness.chaos.nodes.launcher import shifted_ns, shifted_s, slowed
from nextgen.kernel.errors import RefusesToStart

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def control(tmp_path):
    control = ControlFile.create(tmp_path / "node-1")
    yield control
    control.close()


def test_a_fresh_file_asks_for_nothing(control):
    assert (control.fsync_delay_us, control.clock_offset_ns) == (0, 0)
    assert (control.fsyncs_delayed, control.clock_readings_shifted) == (0, 0)


def test_what_one_side_writes_the_other_reads(control, tmp_path):
    other = ControlFile.open(tmp_path / "node-1")

    control.delay_fsyncs(250)
    control.shift_clock(-3_600_000)
    other.count_delayed()
    other.count_shifted()

    assert (other.fsync_delay_us, other.clock_offset_ns) == (250_000, -3_600_000_000_000)
    assert (control.fsyncs_delayed, control.clock_readings_shifted) == (1, 1)
    other.close()


def test_a_delay_and_an_offset_have_limits(control):
    control.delay_fsyncs(DELAY_MS_MAX)
    control.shift_clock(-OFFSET_MS_MAX)

    with pytest.raises(AssertionError):
        control.delay_fsyncs(DELAY_MS_MAX + 1)
    with pytest.raises(AssertionError):
        control.shift_clock(OFFSET_MS_MAX + 1)


@pytest.mark.parametrize("content", [b"", b"short", b"SOMETHING ELSE".ljust(CONTROL_FILE_BYTES)])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)

    with pytest.raises(RefusesToStart):
        ControlFile.open(path)
    with pytest.raises(RefusesToStart):
        ControlFile.open(tmp_path / "missing")


def test_a_clock_is_off_only_while_it_is_asked_for(control):
    ns, seconds = shifted_ns(lambda: 5_000, control), shifted_s(lambda: 5.0, control)
    assert (ns(), seconds(), control.clock_readings_shifted) == (5_000, 5.0, 0)

    control.shift_clock(2_000)
    assert (ns(), seconds(), control.clock_readings_shifted) == (2_000_005_000, 7.0, 2)

    control.shift_clock(0)
    assert (ns(), control.clock_readings_shifted) == (5_000, 2)


def test_an_fsync_is_made_and_counted_however_slow_it_is(control):
    made: list[int] = []
    fsync = slowed(made.append, control)

    fsync(1)
    control.delay_fsyncs(1)
    fsync(2)

    assert made == [1, 2]
    assert control.fsyncs_delayed == 1


def test_a_launched_module_has_a_clock_that_is_off(control, tmp_path):
    (tmp_path / "told.py").write_text(
        "import os, sys, time\n"
        "assert __name__ == '__main__'\n"
        "file = os.open('.', os.O_RDONLY); os.fsync(file)\n"
        "print(time.time_ns(), *sys.argv[1:])\n"
    )
    control.shift_clock(3_600_000)
    control.delay_fsyncs(1)
    command = [
        sys.executable,
        "-m",
        "nextgen.harness.chaos.nodes.launcher",
        str(tmp_path / "node-1"),
    ]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}

    before_ns = time.time_ns()
    ended = subprocess.run(
        [*command, "told", "--flag", "value"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment,
    )

    told_ns, *arguments = ended.stdout.split()
    assert int(told_ns) >= before_ns + 3_600_000_000_000
    assert arguments == ["--flag", "value"]
    assert control.fsyncs_delayed == 1
    assert control.clock_readings_shifted >= 1
