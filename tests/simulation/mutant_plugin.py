"""A pytest plugin that runs tests without one guard: ``-p tests.simulation.mutant_plugin``.

The environment variable ``MUTANT`` names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.simulation.mutants import BY_NAME, removed


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Iterator[None]:
    with removed(BY_NAME[os.environ["MUTANT"]]):
        return (yield)
