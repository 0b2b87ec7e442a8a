"""The plug-in's own tests, in Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.callers.foreign_client import maven_environment, require_tools
from tests.support.stock.plugin import command_of_tests

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

MAVEN_S_MAX = 600


def test_the_plugins_own_tests_pass(tmp_path: Path) -> None:
    require_tools("java", "mvn")
    result = subprocess.run(
        command_of_tests(tmp_path),
        capture_output=True,
        text=True,
        timeout=MAVEN_S_MAX,
        check=False,
        env=maven_environment(),
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-3_000:]
