"""What holds for every test: markers by folder, seeds, and Hypothesis without a stopwatch."""

import faulthandler
import functools
import gc
import logging
import os
import signal
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import structlog
import typer.testing
from hypothesis import HealthCheck, settings

from tests.support.shared_imports import import_with_others

TESTS = Path(__file__).parent
MARKED_FOLDERS = ("integration", "chaos", "simulation")

# pytest-xdist sets a terminal's width in its workers, to which commands would fit their tables.
os.environ.pop("COLUMNS", None)

STUCK_AFTER = 1.5
"""Times its time limit a test may take, cleaning up included, before its process is ended."""

GARBAGE_THRESHOLDS = (1_000, 20, 100)
"""How seldom Python looks for garbage among objects that stayed for long: by default it looks so
often that it takes some hundredths of the processor time of unit tests."""

WATCHED_S = 60.0
"""How much longer than a test needs it the watchdog is set. It is a thread, which ends before the
next one begins: for each test that would take longer than most of them do."""

EXAMPLES, EXAMPLES_NIGHTLY = 50, 300
"""Examples of a property in each run of the tests, and in one of `make nightly`."""

STARTED = pytest.StashKey[float]()
"""When a test began, by the monotonic clock."""

# How long an example takes says more about the machine than about the code. A change is judged by
# the same examples at each run, `make nightly` by more of them (--hypothesis-profile=nightly), and
# `make soak` looks for new ones (--hypothesis-profile=explore). A test that needs more than
# EXAMPLES to reach its states has `max_examples` of its own.
settings.register_profile(
    "here",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=True,
    max_examples=EXAMPLES,
)
settings.register_profile("nightly", settings.get_profile("here"), max_examples=EXAMPLES_NIGHTLY)
settings.register_profile(
    "explore", settings.get_profile("here"), derandomize=False, max_examples=1_000
)
settings.load_profile("here")

# Typer makes Click's commands of a program at each call: a fifth of a second for all of ours.
typer.testing._get_command = functools.cache(typer.testing._get_command)

# By default Rich shows the locals of all frames: five milliseconds at least for each exception.
structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback

_configure = structlog.configure


def pytest_configure() -> None:
    """Take interrupts, and so let the processes under test take them.

    A shell starts what runs in its background with SIGINT ignored. The processes inherit that, and
    one that a test ends by SIGINT would go on for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _configure_without_keeping(**given: Any) -> None:
    """Keep no logger as it is when it is used first.

    A module's logger would go on writing to what a test captured that ended long ago, and no
    later test in this process would see what it says.
    """
    _configure(**{**given, "cache_logger_on_first_use": False})


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep modules and tests out of all collections of garbage: they stay to the end."""
    gc.disable()
    try:
        import_with_others(session.config)
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="seed of simulations: repeats one run")


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    """A command or process that sets up its diagnostics in a test does so for that test only."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with patch.object(structlog, "configure", _configure_without_keeping):
        yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    """End a process whose test goes on behind its time limit; all others are still run.

    The limit interrupts a test once. A test that then waits while it cleans up waits for ever.
    """
    item.stash[STARTED] = time.monotonic()
    _watchdog.watch(_limit_s(item) * STUCK_AFTER)
    return (yield)


class _Watchdog:
    """Ends the process, with the stacks of all threads, some time behind the end of a limit."""

    def __init__(self) -> None:
        self._until = 0.0

    def watch(self, seconds: float) -> None:
        """Let ``seconds`` pass from now on, and ``WATCHED_S`` more at most."""
        now = time.monotonic()
        if self._until - WATCHED_S <= now + seconds <= self._until:
            return
        self._until = now + seconds + WATCHED_S
        faulthandler.dump_traceback_later(seconds + WATCHED_S, exit=True)

    def end(self) -> None:
        self._until = 0.0
        faulthandler.cancel_dump_traceback_later()


_watchdog = _Watchdog()


def pytest_sessionfinish() -> None:
    _watchdog.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that passed behind its time limit.

    The limit is an exception wherever the test is at that moment. In a task that nobody awaits
    it ends that task only, and a test that would have run for ever ends well.
    """
    report = yield
    limit_s = _limit_s(item)
    if call.when == "call" and report.passed and time.monotonic() - item.stash[STARTED] > limit_s:
        report.outcome = "failed"
        report.longrepr = f"took more than its {limit_s:g} s, and swallowed the interruption"
    return report


def _limit_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    limit_s = float(marker.args[0] if marker else item.config.getini("timeout"))
    return max(limit_s, float(item.config.getoption("timeout") or 0))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in MARKED_FOLDERS:
            item.add_marker(folder)
        elif folder == "e2e":
            item.add_marker("integration")
