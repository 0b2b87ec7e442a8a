"""Only a failed test of the ledger of unstable tests is tried once more; the ledger has rules."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support import second_attempt
from tests.support.second_attempt import (
    DAYS_MAX,
    ENTRIES_MAX,
    LEDGER,
    Failures,
    faults_of,
    read_ledger,
)

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 11, 23)

FAILS_ONCE = """
from pathlib import Path

def test_of_a_busy_machine():
    seen = Path("seen")
    was_there = seen.exists()
    seen.touch()
    assert was_there, "the first attempt"
"""
FAILS = "def test_of_a_busy_machine():\n    assert False, 'each attempt'\n"
NODE_ID = "tests/integration/test_one.py::test_of_a_busy_machine"


def entry(node_id: str = NODE_ID, **changed: object) -> dict[str, Any]:
    whole = {"cause": "unknown", "owner": "issue 17", "since": TODAY, "expires": TODAY}
    return {"id": node_id, **whole, **changed}


def written(root: Path, body: str = FAILS_ONCE) -> Path:
    """Return ``root`` with one file of tests, the one that ``entry`` names."""
    (root / "pytest.ini").write_text("[pytest]\n")
    path = root / "tests" / "integration" / "test_one.py"
    path.parent.mkdir(parents=True)
    path.write_text(body)
    return root


def run(root: Path, *, expires: date | None = None) -> tuple[int, str]:
    """Return exit code and output of a run, with an entry until ``expires`` if that is given."""
    if expires is not None:
        (root / LEDGER).write_text(
            f'[[test]]\nid = "{NODE_ID}"\ncause = "unknown"\nowner = "issue 17"\n'
            f"since = {expires}\nexpires = {expires}\n"
        )
    script = str(second_attempt.__file__)
    done = subprocess.run(
        [sys.executable, script, "-q", "-p", "no:cacheprovider"],
        cwd=root,
        # Plugins of pytest take most of the time of its start, and none of them is used here.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
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


def today() -> date:
    return datetime.now(UTC).date()


def test_unstable_test_that_passes_the_second_time_passes_and_both_are_shown(
    tmp_path: Path,
) -> None:
    code, printed = run(written(tmp_path), expires=today() + timedelta(days=1))

    assert code == 0
    assert "AssertionError: the first attempt" in printed
    assert "passed only in a second attempt" in printed
    assert printed.splitlines()[-1] == f"  {NODE_ID}"


def test_unstable_test_that_fails_twice_fails(tmp_path: Path) -> None:
    code, printed = run(written(tmp_path, FAILS), expires=today() + timedelta(days=1))

    assert code == pytest.ExitCode.TESTS_FAILED
    assert printed.count("E       AssertionError: each attempt") == 2
    assert "failed twice" in printed


def test_test_without_an_entry_fails_at_once(tmp_path: Path) -> None:
    code, printed = run(written(tmp_path))

    assert code == pytest.ExitCode.TESTS_FAILED
    assert f"no second attempt: {NODE_ID} is not in {LEDGER}" in printed


def test_expired_entry_fails_before_any_test_is_run(tmp_path: Path) -> None:
    code, printed = run(written(tmp_path), expires=today() - timedelta(days=2))

    assert code == pytest.ExitCode.USAGE_ERROR
    assert "expired on" in printed
    assert not (tmp_path / "seen").exists()


def test_one_failure_without_an_entry_makes_all_final() -> None:
    failures = failures_of(NODE_ID, "tests/e2e/test_two.py::test_two")

    assert failures.why_final({NODE_ID}) == f"tests/e2e/test_two.py::test_two is not in {LEDGER}"


def test_entry_covers_each_parameter_of_its_test() -> None:
    assert failures_of(f"{NODE_ID}[a]", f"{NODE_ID}[b::c]").why_final({NODE_ID}) == ""
    assert failures_of(f"{NODE_ID}_again").why_final({NODE_ID}) != ""


def test_crash_of_a_process_of_tests_is_final() -> None:
    assert failures_of(NODE_ID, when="???").why_final({NODE_ID}) == "a process of the tests crashed"


def test_run_that_failed_without_a_failed_test_is_final() -> None:
    assert Failures().why_final({NODE_ID}) == "no test of its own failed"


def test_the_committed_ledger_breaks_no_rule() -> None:
    assert faults_of(read_ledger(ROOT / LEDGER), root=ROOT, today=today()) == []


def test_entries_max_are_allowed_and_one_more_is_a_fault(tmp_path: Path) -> None:
    root = written(tmp_path)

    assert faults_of([entry()] * ENTRIES_MAX, root=root, today=TODAY) == []
    assert faults_of([entry()] * (ENTRIES_MAX + 1), root=root, today=TODAY) == [
        "the ledger has 6 entries, at most 5 are allowed"
    ]


def test_entry_lasts_days_max_and_one_more_is_a_fault(tmp_path: Path) -> None:
    root = written(tmp_path)
    last = TODAY + timedelta(days=DAYS_MAX)

    assert faults_of([entry(expires=last)], root=root, today=last) == []
    assert faults_of([entry(expires=last + timedelta(days=1))], root=root, today=TODAY) == [
        f"{NODE_ID}: it lasts longer than 30 days"
    ]


def test_entry_is_valid_on_its_last_day_and_expired_the_day_after(tmp_path: Path) -> None:
    root = written(tmp_path)
    day_after = TODAY + timedelta(days=1)

    assert faults_of([entry()], root=root, today=TODAY) == []
    assert faults_of([entry()], root=root, today=day_after) == [
        f"{NODE_ID}: expired on 2026-11-23: mend the test or the product"
    ]


@pytest.mark.parametrize(
    "node_id",
    [
        "tests/integration/test_none.py::test_of_a_busy_machine",
        "tests/integration/test_one.py::test_none",
        "tests/integration/test_one.py",
    ],
)
def test_entry_without_an_existing_test_is_a_fault(tmp_path: Path, node_id: str) -> None:
    assert faults_of([entry(node_id)], root=written(tmp_path), today=TODAY) == [
        f"{node_id}: there is no such test"
    ]


@pytest.mark.parametrize("folder", ["unit", "simulation", "chaos", "fuzz"])
def test_entry_outside_the_tests_of_processes_is_a_fault(tmp_path: Path, folder: str) -> None:
    faults = faults_of([entry(f"tests/{folder}/test_one.py::test_one")], root=tmp_path, today=TODAY)

    assert ["only tests of these folders may be unstable" in fault for fault in faults] == [True]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"cause": ""}, "cause"),
        ({"owner": None}, "owner"),
        ({"expires": "2026-12-01"}, "expires"),
        ({"reason": "more"}, "reason"),
    ],
)
def test_entry_with_a_missing_or_unknown_field_is_a_fault(
    tmp_path: Path, changed: dict[str, object], named: str
) -> None:
    assert faults_of([entry(**changed)], root=written(tmp_path), today=TODAY) == [
        f"{NODE_ID}: fields are missing, empty or unknown: {named}"
    ]
