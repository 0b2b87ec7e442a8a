"""Pytest, and a second attempt for a test of real processes that failed: see the ADR 0047.

    python -m tests.support.second_attempt <arguments of pytest>

Ends as pytest does. The second attempt is alone on the machine, in a process of its own, and is
refused to tests that look for rare events, to crashes and to more than ``ATTEMPTS_MAX`` tests.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

ATTEMPTS_MAX = 2
"""More failures than these in one run are no accident."""

FOLDERS = ("tests/integration/", "tests/e2e/", "tests/spark/", "tests/containers/")
"""Examples of a system at work, over processes that a busy machine may stop at any moment. Not
simulations, chaos and fuzzing, which look for what happens once in many runs, nor unit tests."""


class Failures:
    """A plugin that notes which tests failed, and whether by themselves."""

    def __init__(self) -> None:
        self.node_ids: dict[str, None] = {}
        self.has_crashed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.node_ids[report.nodeid] = None
            # What is reported of a test whose worker process is gone.
            self.has_crashed |= report.when not in ("setup", "call", "teardown")

    def why_final(self) -> str:
        """Return why nothing of it is tried again, "" if all of it may be."""
        if self.has_crashed:
            return "a process of the tests crashed"
        if not self.node_ids:
            return "no test of its own failed"
        if len(self.node_ids) > ATTEMPTS_MAX:
            return f"{len(self.node_ids)} tests failed, at most {ATTEMPTS_MAX} are tried again"
        for node_id in self.node_ids:
            if not node_id.startswith(FOLDERS):
                return f"{node_id} does not depend on how busy the machine is"
        return ""


def main(arguments: Sequence[str]) -> int:
    failures = Failures()
    code = int(pytest.main(list(arguments), plugins=[failures]))
    if code != pytest.ExitCode.TESTS_FAILED:
        return code
    why_final = failures.why_final()
    if why_final:
        print(f"no second attempt: {why_final}")
        return code
    names = "\n".join(f"  {node_id}" for node_id in failures.node_ids)
    print(f"second attempt, alone, of what failed above:\n{names}", flush=True)
    kept = [each for each in arguments if each.startswith("--timeout")]
    command = [sys.executable, "-m", "pytest", *kept, *failures.node_ids]
    code = subprocess.run(command, check=False).returncode
    verdict = (
        "failed twice" if code else "passed only in a second attempt, which is a defect to mend"
    )
    print(f"{verdict}:\n{names}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
