"""Pytest, and a second attempt for the tests that tests/unstable.toml lists: see the ADR 0064.

    python -m tests.support.second_attempt <arguments of pytest>

Ends as pytest does, and fails before it runs anything if the ledger breaks one of its own rules.
A second attempt is made only if every failed test has an entry. It runs alone on the machine, in
a process of its own.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

LEDGER = Path("tests/unstable.toml")

ENTRIES_MAX = 5
"""Entries of the ledger. More unstable tests than these are a reason to stop and mend them."""

DAYS_MAX = 30
"""Days between the two dates of an entry: time to find a cause, and too short to forget it."""

FIELDS = {"id": str, "cause": str, "owner": str, "since": date, "expires": date}

FOLDERS = ("tests/integration/", "tests/e2e/", "tests/spark/", "tests/containers/")
"""Where an unstable test may live: examples over real processes, which the machine schedules.
A unit test, a simulation, a fuzzer or a chaos run that fails once has found something."""


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """Return the entries of the ledger at ``path``; without the file there are none."""
    if not path.exists():
        return []
    entries: list[dict[str, Any]] = tomllib.loads(path.read_text()).get("test", [])
    return entries


def faults_of(entries: Sequence[Mapping[str, Any]], *, root: Path, today: date) -> list[str]:
    """Return a sentence for each rule that ``entries`` break; ``root`` has the tests."""
    faults = []
    if len(entries) > ENTRIES_MAX:
        faults.append(f"the ledger has {len(entries)} entries, at most {ENTRIES_MAX} are allowed")
    for entry in entries:
        name = entry.get("id") or "an entry without an id"
        wrong = sorted(
            field
            for field in FIELDS.keys() | entry.keys()
            if field not in FIELDS
            or not entry.get(field)
            or not isinstance(entry[field], FIELDS[field])
        )
        fault = f"fields are missing, empty or unknown: {', '.join(wrong)}" if wrong else ""
        fault = fault or _fault_of(entry, root, today)
        if fault:
            faults.append(f"{name}: {fault}")
    return faults


def _fault_of(entry: Mapping[str, Any], root: Path, today: date) -> str:
    """Return what is wrong with an entry that has all its fields, "" if nothing is."""
    if not entry["id"].startswith(FOLDERS):
        return f"only tests of these folders may be unstable: {', '.join(FOLDERS)}"
    if not _exists(entry["id"], root):
        return "there is no such test"
    if entry["expires"] - entry["since"] > timedelta(days=DAYS_MAX):
        return f"it lasts longer than {DAYS_MAX} days"
    if today > entry["expires"]:
        return f"expired on {entry['expires']}: mend the test or the product"
    return ""


def _exists(node_id: str, root: Path) -> bool:
    name, _, function = node_id.partition("::")
    path = root / name
    return path.is_file() and any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function
        for node in ast.parse(path.read_text()).body
    )


class Failures:
    """A plugin that notes which tests failed, and whether a process of the tests crashed."""

    def __init__(self) -> None:
        self.node_ids: dict[str, None] = {}
        self.has_crashed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.node_ids[report.nodeid] = None
            # pytest-xdist reports a test whose worker process is gone with a phase of its own.
            self.has_crashed |= report.when not in ("setup", "call", "teardown")

    def why_final(self, unstable: set[str]) -> str:
        """Return why the failures count at once, "" if each is of a test in ``unstable``."""
        if self.has_crashed:
            return "a process of the tests crashed"
        if not self.node_ids:
            return "no test of its own failed"
        for node_id in self.node_ids:
            if node_id.partition("[")[0] not in unstable:
                return f"{node_id} is not in {LEDGER}"
        return ""


def main(arguments: Sequence[str]) -> int:
    entries = read_ledger(LEDGER)
    faults = faults_of(entries, root=Path(), today=datetime.now(UTC).date())
    if faults:
        print(f"{LEDGER}:", *faults, sep="\n  ", flush=True)
        return int(pytest.ExitCode.USAGE_ERROR)
    failures = Failures()
    code = int(pytest.main(list(arguments), plugins=[failures]))
    if code != pytest.ExitCode.TESTS_FAILED:
        return code
    why_final = failures.why_final({entry["id"] for entry in entries})
    if why_final:
        print(f"no second attempt: {why_final}")
        return code
    names = "\n".join(f"  {node_id}" for node_id in failures.node_ids)
    print(f"second attempt, alone, of unstable tests:\n{names}", flush=True)
    kept = [each for each in arguments if each.startswith("--timeout")]
    command = [sys.executable, "-m", "pytest", *kept, *failures.node_ids]
    code = subprocess.run(command, check=False).returncode
    print(f"{'failed twice' if code else 'passed only in a second attempt'}:\n{names}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
