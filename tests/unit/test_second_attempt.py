"""A failed test of real processes is tried once more, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import second_attempt
from tests.support.second_attempt import ATTEMPTS_MAX, Failures

FAILS_ONCE = """
from pathlib import Path

def test_of_a_busy_machine():
    seen = Path("seen")
    was_there = seen.exists()
    seen.touch()
    assert was_there, "the first attempt"
"""
FAILS = "def test_of_a_defect():\n    assert False, 'each attempt'\n"


def run(root: Path, folder: str, body: str) -> tuple[int, str]:
    """Return the exit code and what was printed of a run over one file of tests."""
    (root / "pytest.ini").write_text("[pytest]\n")
    path = root / folder / "test_one.py"
    path.parent.mkdir(parents=True)
    path.write_text(body)
    script = str(second_attempt.__file__)
    done = subprocess.run(
        [sys.executable, script, "-q", "-p", "no:cacheprovider"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def failures_of(*node_ids: str, when: str = "call") -> Failures:
    failures = Failures()
    for node_id in node_ids:
        failures.pytest_runtest_logreport(
            pytest.TestReport(node_id, ("", 0, ""), {}, "failed", None, when)  # type: ignore[arg-type]
        )
    return failures


def test_what_passes_the_second_time_passes_and_both_attempts_are_shown(tmp_path: Path) -> None:
    code, printed = run(tmp_path, "tests/integration", FAILS_ONCE)

    assert code == 0
    assert "AssertionError: the first attempt" in printed
    assert "passed only in a second attempt" in printed
    assert printed.splitlines()[-1] == "  tests/integration/test_one.py::test_of_a_busy_machine"


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    code, printed = run(tmp_path, "tests/e2e", FAILS)

    assert code == pytest.ExitCode.TESTS_FAILED
    assert printed.count("E       AssertionError: each attempt") == 2
    assert "failed twice" in printed


def test_a_unit_test_fails_at_once(tmp_path: Path) -> None:
    code, printed = run(tmp_path, "tests/unit", FAILS_ONCE)

    assert code == pytest.ExitCode.TESTS_FAILED
    assert "no second attempt" in printed


@pytest.mark.parametrize("folder", ["unit", "simulation", "chaos", "fuzz"])
def test_what_a_busy_machine_does_not_explain_is_final(folder: str) -> None:
    node_id = f"tests/{folder}/test_one.py::test_one"

    failures = failures_of("tests/e2e/test_one.py::test_one", node_id)

    assert failures.why_final() == f"{node_id} does not depend on how busy the machine is"


def test_many_failures_are_no_accident() -> None:
    names = [f"tests/e2e/test_one.py::test_{i}" for i in range(ATTEMPTS_MAX + 1)]

    assert failures_of(*names[:ATTEMPTS_MAX]).why_final() == ""
    assert failures_of(*names).why_final() == "3 tests failed, at most 2 are tried again"


def test_a_crash_of_a_process_of_tests_is_final() -> None:
    failures = failures_of("tests/e2e/test_one.py::test_one", when="???")

    assert failures.why_final() == "a process of the tests crashed"


def test_a_run_that_failed_without_a_failed_test_is_final() -> None:
    assert Failures().why_final() == "no test of its own failed"
