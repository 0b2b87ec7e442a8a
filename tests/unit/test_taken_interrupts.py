"""Processes under test take interrupts, however the tests were started: ``tests/conftest.py``."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.conftest import pytest_configure

PRINT_HANDLER = "import signal; print(signal.getsignal(signal.SIGINT).__name__)"


def test_a_process_under_test_takes_interrupts_although_the_tests_run_in_the_background() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pytest_configure()
        printed = subprocess.run(
            [sys.executable, "-c", PRINT_HANDLER], capture_output=True, text=True, check=True
        )
    finally:
        signal.signal(signal.SIGINT, before)

    assert printed.stdout.strip() == signal.default_int_handler.__name__
