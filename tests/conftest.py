"""What holds for every test: markers by folder, seeds, and Hypothesis without a stopwatch."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import structlog
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
MARKED_FOLDERS = ("integration", "chaos", "simulation")

# How long an example takes says more about the machine than about the code.
settings.register_profile(
    "here", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("here")

_configure = structlog.configure


def _configure_without_keeping(**given: Any) -> None:
    """Keep no logger as it is when it is used first.

    A module's logger would go on writing to what a test captured that ended long ago, and no
    later test in this process would see what it says.
    """
    _configure(**{**given, "cache_logger_on_first_use": False})


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in MARKED_FOLDERS:
            item.add_marker(folder)
        elif folder == "e2e":
            item.add_marker("integration")
