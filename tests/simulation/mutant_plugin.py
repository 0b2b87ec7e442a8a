"""A pytest plugin that runs tests without one guard: ``-p tests.simulation.mutant_plugin``.

The environment variable ``MUTANT`` names it.
"""

from __future__ import annotations

import contextlib
import os

import pytest

from tests.simulation.mutants.catalog import BY_NAME
from tests.simulation.mutants.mutant import removed

_STACK = contextlib.ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    # Before any test module imports what is removed here.
    _STACK.enter_context(removed(BY_NAME[os.environ["MUTANT"]]))
    config.add_cleanup(_STACK.close)
